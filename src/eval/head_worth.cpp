#include "eval/head_worth.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "eval/perplexity.h"
#include "kernels/kernels.h"
#include "model/decoder.h"
#include "model/loaded_model.h"
#include "model/memory_shape.h"
#include "state/state.h"

namespace kvtide {
namespace {

constexpr std::int64_t kStep = 128;
constexpr KvPart kParts[] = {KvPart::keys, KvPart::values};

// A text read up to its second copy, which can be read again and again.
class Recital {
 public:
  Recital(const Model& model, ThreadPool& pool, const WordsTwice& text)
      : context_{model.internals().config, *model.internals().weights, best_kernels(), pool},
        text_(text),
        state_(spec_of(context_.config, text)),
        workspace_(context_.config, kStep),
        logits_(static_cast<std::size_t>(context_.config.vocab)) {
    const auto before = std::span(text_.tokens).first(static_cast<std::size_t>(text_.second));
    for (std::size_t done = 0; done < before.size();) {
      const std::size_t count = std::min<std::size_t>(kStep, before.size() - done);
      forward(context_, workspace_, {state_, before.subspan(done, count)});
      done += count;
    }
  }

  // -ln p per token of the second copy.
  double nats() {
    KvState trial = state_.fork();
    const auto words = std::span(text_.tokens).subspan(static_cast<std::size_t>(text_.second));
    const auto hidden = forward(context_, workspace_, {trial, words, text_.words});
    const std::vector<float> rows(hidden.begin(), hidden.end());
    double sum = 0.0;
    for (std::int64_t at = text_.settle; at + 1 < text_.words; ++at) {
      logits(context_, workspace_, rows.data() + at * context_.config.width, 1, logits_.data());
      sum += negative_log_likelihood(logits_, words[static_cast<std::size_t>(at + 1)]);
    }
    return sum / static_cast<double>(text_.words - 1 - text_.settle);
  }

  // Puts the rows of the text behind the first copy in the place of the copy's, and gives what stood there.
  std::vector<std::byte> hide(const HeadPlace& place) {
    std::vector<std::byte> hidden;
    for (const KvPart part : kParts) {
      const RowSpan copy = rows(place, part, text_.first),
                    behind = rows(place, part, text_.first + text_.words);
      for (std::int64_t r = 0; r < copy.rows; ++r) {
        hidden.insert(hidden.end(), copy.row(r).begin(), copy.row(r).end());
        std::memcpy(copy.row(r).data(), behind.row(r).data(), behind.row(r).size());
      }
    }
    return hidden;
  }
  void show(const HeadPlace& place, const std::vector<std::byte>& hidden) {
    const std::byte* from = hidden.data();
    for (const KvPart part : kParts) {
      const RowSpan copy = rows(place, part, text_.first);
      for (std::int64_t r = 0; r < copy.rows; ++r, from += copy.row_bytes)
        std::memcpy(copy.row(r).data(), from, copy.row(r).size());
    }
  }

 private:
  static KvSpec spec_of(const ModelConfig& config, const WordsTwice& text) {
    KvSpec spec = memory_shape(config);
    spec.capacity = std::ssize(text.tokens);
    spec.max_step = kStep;
    return spec;
  }
  RowSpan rows(const HeadPlace& place, KvPart part, Pos from) {
    return state_.rows_of_head(place.layer, place.head, part, {from, from + text_.words});
  }

  DecoderContext context_;
  const WordsTwice& text_;
  KvState state_;
  Workspace workspace_;
  std::vector<float> logits_;
};

double mean_nats(std::vector<Recital>& recitals) {
  double sum = 0.0;
  for (Recital& recital : recitals) sum += recital.nats();
  return sum / static_cast<double>(recitals.size());
}

// Without the rows of one head.
double nats_without(std::vector<Recital>& recitals, const HeadPlace& place) {
  std::vector<std::vector<std::byte>> hidden;
  for (Recital& recital : recitals) hidden.push_back(recital.hide(place));
  const double nats = mean_nats(recitals);
  for (std::size_t i = 0; i < recitals.size(); ++i) recitals[i].show(place, hidden[i]);
  return nats;
}

}  // namespace

std::vector<float> head_worths(const Model& model, ThreadPool& pool, std::span<const WordsTwice> texts,
                               std::span<const HeadPlace> heads) {
  std::vector<Recital> recitals;
  recitals.reserve(texts.size());
  for (const WordsTwice& text : texts) recitals.emplace_back(model, pool, text);
  std::vector<double> alone;
  for (const HeadPlace& place : heads) alone.push_back(nats_without(recitals, place));

  std::vector<std::size_t> order(heads.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return alone[a] < alone[b]; });
  std::vector<float> worths(heads.size());
  double before = mean_nats(recitals);
  for (const std::size_t i : order) {
    for (Recital& recital : recitals) recital.hide(heads[i]);
    const double now = mean_nats(recitals);
    worths[i] = static_cast<float>(std::max(0.0, now - before));
    before = now;
  }
  return worths;
}

}  // namespace kvtide
