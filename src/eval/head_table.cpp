#include "kvtide/heads.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "eval/head_worth.h"
#include "eval/words_twice.h"
#include "kernels/codec.h"
#include "kernels/kernels.h"
#include "kvtide/error.h"
#include "kvtide/generate.h"
#include "model/decoder.h"
#include "model/loaded_model.h"
#include "model/memory_shape.h"
#include "state/procedural/reference_rows.h"
#include "state/procedural/seal_head.h"
#include "state/state.h"

namespace kvtide {
namespace {

constexpr std::int64_t kBlock = 256, kWindow = 512;
constexpr std::int64_t kTelling = 24;  // rows per head that count as the most telling of a block

// One text read with every query kept.
class Reading {
 public:
  Reading(const Model& model, ThreadPool& pool, std::span<const TokenId> tokens, std::int64_t stride)
      : config_(model.internals().config), spec_(spec_of(config_, tokens, stride)), state_(state_spec()) {
    const DecoderContext context{config_, *model.internals().weights, best_kernels(), pool,
                                 [this](int layer, std::span<const float> x) { note_residual(layer, x); }};
    residuals_.resize(config_.layers.size());
    Workspace workspace(config_, kBlock);
    for (std::size_t done = 0; done < tokens.size();) {
      const std::size_t count = std::min<std::size_t>(kBlock, tokens.size() - done);
      forward(context, workspace, {state_, tokens.subspan(done, count)});
      done += count;
    }
  }

  const ProceduralSpec& spec() const { return spec_; }
  const References& references() const { return state_.past()->references(); }

  // Keys (as rotated) and values of positions [first, last) of one head.
  BlockRows rows(int layer, int head, Pos first, Pos last) {
    BlockRows block = padded_block(last - first, config_.head_dim);
    const RowSpan keys = state_.rows_of_head(layer, head, KvPart::keys, {first, last});
    const RowSpan values = state_.rows_of_head(layer, head, KvPart::values, {first, last});
    for (std::int64_t j = 0; j < block.rows; ++j) {
      decode_row(DType::f16, keys.row(j).data(), config_.head_dim, block.keys.data() + j * block.padded_dim);
      decode_row(DType::f16, values.row(j).data(), config_.head_dim,
                 block.values.data() + j * block.padded_dim);
    }
    return block;
  }
  float median_residual(int layer) {
    auto& norms = residuals_[static_cast<std::size_t>(layer)];
    std::nth_element(norms.begin(), norms.begin() + static_cast<std::ptrdiff_t>(norms.size() / 2),
                     norms.end());
    return norms[norms.size() / 2];
  }

 private:
  static ProceduralSpec spec_of(const ModelConfig& config, std::span<const TokenId> tokens,
                                std::int64_t stride) {
    ProceduralOptions options;
    options.block = kBlock;
    options.window = static_cast<std::int64_t>(tokens.size()) + kBlock;  // nothing is ever sealed
    options.rows = kBlock / 4;
    options.summaries = ProceduralOptions::kSummaries;
    options.levels = 0;
    options.row_type = RowType::f16;
    ProceduralSpec spec = procedural_spec(memory_shape(config), attention_shape(config), options);
    spec.reference_stride = stride;
    return spec;
  }
  KvSpec state_spec() const {
    KvSpec spec;
    for (const int layer : attention_layers(config_))
      spec.layers.push_back(
          {config_.kv_heads, config_.head_dim, config_.layers[static_cast<std::size_t>(layer)].window});
    spec.recurrent = memory_shape(config_).recurrent;
    spec.capacity = spec_.window;
    spec.max_step = kBlock;
    spec.procedural = spec_;
    return spec;
  }
  void note_residual(int layer, std::span<const float> x) {
    for (std::size_t row = 0; row < x.size(); row += static_cast<std::size_t>(config_.width)) {
      double sum = 0.0;
      for (std::int64_t d = 0; d < config_.width; ++d) {
        const double v = static_cast<double>(x[row + static_cast<std::size_t>(d)]);
        sum += v * v;
      }
      residuals_[static_cast<std::size_t>(layer)].push_back(static_cast<float>(std::sqrt(sum)));
    }
  }

  const ModelConfig& config_;
  ProceduralSpec spec_;
  KvState state_;
  std::vector<std::vector<float>> residuals_;  // [layer][token]
};

std::vector<TokenId> write_prose(const Model& model, const MeasureHeads& o,
                                 const std::function<void(double)>& progress) {
  Session session(model, {.context = o.prose + 1, .threads = o.threads});
  std::vector<TokenId> tokens = model.tokenizer().encode("It was", EncodeOptions{});
  session.read(tokens);
  Sampler sampler({.temperature = 1.0f, .seed = 1});
  while (static_cast<std::int64_t>(tokens.size()) < o.prose) {
    tokens.push_back(sampler.pick(session.logits(), tokens));
    session.read({&tokens.back(), 1});
    if (tokens.size() % 64 == 0) progress(static_cast<double>(tokens.size()) / static_cast<double>(o.prose));
  }
  return tokens;
}

void measure_induction(const Model& model, ThreadPool& pool, const WordsTwice& text, HeadTable& table) {
  Reading reading(model, pool, text.tokens, 1);

  const ModelConfig& config = model.internals().config;
  const int group = config.heads / config.kv_heads;
  for (int layer = 0; layer < static_cast<int>(reading.spec().plans.size()); ++layer) {
    if (reading.spec().plans[static_cast<std::size_t>(layer)].empty()) continue;
    for (int head = 0; head < config.kv_heads; ++head) {
      const BlockRows keys = reading.rows(layer, head, 0, static_cast<Pos>(text.tokens.size()));
      std::vector<float> query(static_cast<std::size_t>(keys.padded_dim), 0.0f);
      float best = 0.0f;
      for (int g = 0; g < group; ++g) {
        double sum = 0.0;
        for (std::int64_t j = text.settle; j + 1 < text.words; ++j) {
          const Pos at = text.second + j;
          const std::size_t place = reading.references().place(layer, at);
          reading.references().query(best_kernels(), place, head * group + g, query.data());
          turn_row(query.data(), reading.spec().frequencies[static_cast<std::size_t>(layer)], at);
          for (const Pos seen : {text.first + j, text.first + j + 1}) {
            float dot = 0.0f;
            for (std::int64_t d = 0; d < keys.dim; ++d)
              dot += query[static_cast<std::size_t>(d)] *
                     keys.keys[static_cast<std::size_t>(seen * keys.padded_dim + d)];
            sum += std::exp(static_cast<double>(dot * config.attention_scale -
                                                reading.references().log_mass(place, head * group + g)));
          }
        }
        best = std::max(best, static_cast<float>(sum / static_cast<double>(text.words - 1 - text.settle)));
      }
      table.needs[static_cast<std::size_t>(layer * config.kv_heads + head)].induction += 0.5f * best;
    }
  }
}

// Only heads that attend back can be worth anything.
void measure_worth(const Model& model, ThreadPool& pool, std::span<const WordsTwice> texts,
                   HeadTable& table) {
  std::vector<HeadPlace> places;
  std::vector<HeadNeed*> needs;
  for (std::size_t i = 0; i < table.needs.size(); ++i) {
    table.needs[i].worth = 0.0f;
    if (table.needs[i].induction < ProceduralOptions{}.full_from) continue;
    places.push_back({static_cast<int>(i) / table.kv_heads, static_cast<int>(i) % table.kv_heads});
    needs.push_back(&table.needs[i]);
  }
  const std::vector<float> worths = head_worths(model, pool, texts, places);
  for (std::size_t i = 0; i < needs.size(); ++i) needs[i]->worth = worths[i];
}

// |W_O| of the columns that belong to each KV head.
std::vector<float> output_norms(const Model& model, int layer) {
  const ModelConfig& config = model.internals().config;
  const MatmulRow& kernels = best_kernels().matmul;
  const WeightMatrix& output = model.internals().weights->layer(layer).output;
  const std::int64_t columns = static_cast<std::int64_t>(config.heads) * config.head_dim,
                     group = columns / config.kv_heads;
  std::vector<double> sums(static_cast<std::size_t>(config.kv_heads), 0.0);
  std::vector<float> row(static_cast<std::size_t>(columns));
  for (std::int64_t r = 0; r < config.width; ++r) {
    decode_weight_row(kernels, output, r, row.data());
    for (std::int64_t c = 0; c < columns; ++c) {
      const double v = static_cast<double>(row[static_cast<std::size_t>(c)]);
      sums[static_cast<std::size_t>(c / group)] += v * v;
    }
  }
  std::vector<float> norms;
  for (const double sum : sums) norms.push_back(static_cast<float>(std::sqrt(sum)));
  return norms;
}

void measure_shares(const Model& model, ThreadPool& pool, std::span<const TokenId> prose, HeadTable& table) {
  Reading reading(model, pool, prose, kBlock / kBlockReferences);
  const ModelConfig& config = model.internals().config;
  const Kernels& kernels = best_kernels();
  std::vector<std::size_t> heads;  // numbers of the heads that take part
  const auto layers = attention_layers(config);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    if (reading.spec().plans[layer].empty()) continue;
    const auto norms = output_norms(model, layers[layer]);
    const float residual = reading.median_residual(layers[layer]);
    for (std::size_t h = 0; h < static_cast<std::size_t>(config.kv_heads); ++h) {
      const std::size_t index = layer * static_cast<std::size_t>(config.kv_heads) + h;
      table.needs[index].output_norm = norms[h] / residual;
      table.needs[index].share = 0.0f;
      heads.push_back(index);
    }
  }
  std::int64_t blocks = 0;
  for (Pos first = 0; first + kBlock + kWindow <= static_cast<Pos>(prose.size()); first += kBlock, ++blocks) {
    const Pos from = std::max<Pos>(first, 4), last = first + kBlock, position = last + kWindow;
    std::vector<std::vector<float>> losses(heads.size());
    std::vector<AskedAhead> made;
    const auto asked = place_ahead(reading.spec(), judges_of_seal(reading.references(), from, last, position),
                                   position, made);
    pool.run(static_cast<std::int64_t>(heads.size()), [&](std::int64_t i) {
      const auto index = heads[static_cast<std::size_t>(i)];
      const int layer = static_cast<int>(index) / config.kv_heads,
                head = static_cast<int>(index) % config.kv_heads;
      const BlockRows block = reading.rows(layer, head, from, last);
      Summariser summariser(kernels.dense);
      losses[static_cast<std::size_t>(i)] =
          summariser.row_losses(block,
                                ask(kernels, reading.spec(), reading.references(),
                                    *asked[static_cast<std::size_t>(layer)], layer, head, block.padded_dim),
                                config.attention_scale);
      for (float& loss : losses[static_cast<std::size_t>(i)]) loss *= table.needs[index].output_norm;
    });
    std::vector<float> all;
    for (const auto& of_head : losses) all.insert(all.end(), of_head.begin(), of_head.end());
    const auto most = static_cast<std::ptrdiff_t>(
        std::min(all.size() - 1, static_cast<std::size_t>(kTelling) * heads.size()));
    std::nth_element(all.begin(), all.begin() + most, all.end(), std::greater<>());
    for (std::size_t i = 0; i < heads.size(); ++i)
      table.needs[heads[i]].share +=
          static_cast<float>(std::count_if(losses[i].begin(), losses[i].end(), [&](float loss) {
            return loss >= all[static_cast<std::size_t>(most)];
          }));
  }
  for (const std::size_t index : heads) table.needs[index].share /= static_cast<float>(blocks);
}

}  // namespace

HeadTable measure_heads(const Model& model, const MeasureHeads& o) {
  const ModelConfig& config = model.internals().config;
  if (!even_layers(config))
    throw Error(ErrorCode::unsupported,
                "heads are measured of models whose layers all have the same heads and rows of their own");
  const auto progress = [&](double share) {
    if (o.progress && !o.progress(share))
      throw Error(ErrorCode::cancelled, "the head table was not finished");
  };
  HeadTable table;
  table.kv_heads = config.kv_heads;
  table.needs.resize(attention_layers(config).size() * static_cast<std::size_t>(config.kv_heads));
  ThreadPool pool(ThreadPool::count(std::max(o.threads, 0)));
  const auto prose = write_prose(model, o, [&](double share) { progress(0.7 * share); });
  std::vector<WordsTwice> texts;
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    texts.push_back(words_twice(model.tokenizer(), prose, seed));
    measure_induction(model, pool, texts.back(), table);
    progress(0.75 + 0.05 * static_cast<double>(seed));
  }
  measure_worth(model, pool, texts, table);
  progress(0.9);
  measure_shares(model, pool, prose, table);
  progress(1.0);
  return table;
}

}  // namespace kvtide
