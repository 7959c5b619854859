// shard_model.cpp: a folder of shards as a model under test, driven as any host drives it (kvtide/shard.h).
#include <algorithm>
#include <iterator>

#include "base/half.h"
#include "base/out_of_memory.h"
#include "base/text.h"
#include "kvtide/masks.h"
#include "kvtide/shard.h"
#include "kvtide/validate.h"
#include "shards/shard_folder.h"
#include "validate/plain_decoder.h"

namespace kvtide {
namespace {

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

struct ShardStates final : TestedState {
  std::vector<ShardState> layers;
};

std::vector<ShardState>& states_of(TestedState& state) { return static_cast<ShardStates&>(state).layers; }

// [tokens][channels] as [channels][tokens], or back with the counts exchanged.
std::vector<float> turned(std::span<const float> x, std::int64_t rows, std::int64_t columns) {
  std::vector<float> out(x.size());
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) out[size(c * rows + r)] = x[size(r * columns + c)];
  return out;
}

class ShardedTested final : public TestedModel {
 public:
  ShardedTested(const std::string& path, const ShardOptions& options)
      : folder_(path, options), config_(folder_.internals().manifest.config) {
    const auto opened = [&](ShardKind kind, int layer) {
      for (const ShardInfo& info : folder_.shards())
        if (info.kind == kind && info.layer == layer) return folder_.open(info.name);
      throw Error(ErrorCode::bad_format,
                  cat(path, ": layer ", layer, " has no ", shard_kind_name(kind), " shard"));
    };
    embedding_.push_back(opened(ShardKind::embedding, 0));
    for (int layer = 0; layer < folder_.layers(); ++layer) {
      attention_.push_back(opened(ShardKind::attention, layer));
      feed_forward_.push_back(opened(config_.experts ? ShardKind::moe : ShardKind::mlp, layer));
    }
    for (const ShardInfo& info : folder_.shards())
      if (info.kind == ShardKind::head) heads_.push_back(folder_.open(info.name));
  }

  TestedShape shape() const override {
    const ShardManifest& manifest = folder_.internals().manifest;
    TestedShape shape;
    shape.name = cat(manifest.name, " in ", folder_.shards().size(), " shards (", manifest.weights, ")");
    for (const LayerConfig& layer : config_.layers)
      shape.layers.push_back({config_.kv_heads, config_.head_dim, layer.window});
    shape.width = config_.width;
    shape.vocab = config_.vocab;
    shape.largest_chunk = folder_.t_max();
    shape.gives_hidden = shape.isolates = shape.gives_rows = shape.truncates = shape.poisons = true;
    return shape;
  }

  std::unique_ptr<TestedState> make_state(std::int64_t) override {
    auto states = std::make_unique<ShardStates>();
    for (const Shard& shard : attention_) states->layers.push_back(shard.make_state());
    return states;
  }

  Reading read(TestedState& state, std::span<const TokenId> tokens, std::span<const float> inputs) override {
    const auto columns = static_cast<std::int64_t>(tokens.size());
    const std::int64_t width = config_.width, layer_size = columns * width;
    std::vector<ShardState>& states = states_of(state);
    const Pos first = states.front().position();
    if (columns > folder_.slots() - first)
      throw Error(ErrorCode::context_full, cat(columns, " more tokens do not fit: ", first, " of ",
                                               folder_.slots(), " slots are in use"));
    ChunkMask chunk;
    chunk.first = first;
    chunk.tokens = columns;
    chunk.rows = folder_.slots();
    const std::vector<float> write = write_mask(chunk);
    std::vector<float> router(size(columns * folder_.router_width()));
    std::vector<float> cosine(size(columns * folder_.rope_half())), sine(cosine.size());
    std::vector<float> x = embedding_.front().predict(tokens, first);
    Reading reading;
    const auto show = [&] {
      const std::vector<float> rows = turned(x, width, columns);
      reading.hidden.insert(reading.hidden.end(), rows.begin(), rows.end());
    };
    try {
      for (std::size_t layer = 0; layer < attention_.size(); ++layer) {
        show();
        if (!inputs.empty())
          x = turned(inputs.subspan(layer * size(layer_size), size(layer_size)), columns, width);
        const ShardInfo& info = attention_[layer].info();
        if (!cosine.empty()) folder_.rope_rows(info.rope, first, columns, cosine, sine);
        chunk.attention_size = info.window;
        const std::vector<float> seen = attention_mask(chunk);
        x = attention_[layer].predict({x, cosine, sine, seen, write}, states[layer]);
        x = router.empty() ? feed_forward_[layer].predict(x) : feed_forward_[layer].predict(x, router);
      }
      show();
      reading.logits.resize(size(columns * config_.vocab));
      for (const Shard& head : heads_) {
        const std::vector<float> part = head.predict(x);
        const std::int64_t from = head.info().vocab_first, count = head.info().vocab_last - from;
        for (std::int64_t id = 0; id < count; ++id)
          for (std::int64_t t = 0; t < columns; ++t)
            reading.logits[size(t * config_.vocab + from + id)] = part[size(id * columns + t)];
      }
    } catch (...) {
      for (ShardState& one : states) one.truncate(std::min(first, one.position()));
      throw;
    }
    return reading;
  }

  HeldRows rows(TestedState& state, int layer) override {
    const ShardState& held = states_of(state)[size(layer)];
    HeldRows out;
    out.kv_heads = config_.kv_heads;
    out.head_dim = config_.head_dim;
    out.rows = held.position();
    for (const auto& [tensor, part] : {std::pair(0, &out.keys), std::pair(1, &out.values)})
      for (std::int64_t head = 0; head < out.kv_heads; ++head) {
        const std::uint16_t* from = halves(held, tensor) + head * held.slots() * out.head_dim;
        std::transform(from, from + out.rows * out.head_dim, std::back_inserter(*part), f16_to_f32);
      }
    return out;
  }

  void truncate(TestedState& state, Pos length) override {
    for (ShardState& one : states_of(state)) one.truncate(length);
  }

  void poison(TestedState& state, float value) override {
    for (const ShardState& one : states_of(state))
      for (const int tensor : {0, 1})
        for (std::int64_t head = 0; head < config_.kv_heads; ++head) {
          std::uint16_t* row = halves(one, tensor) + head * one.slots() * config_.head_dim;
          std::fill(row + one.position() * config_.head_dim, row + one.slots() * config_.head_dim,
                    f32_to_f16(value));
        }
  }

 private:
  static std::uint16_t* halves(const ShardState& state, int tensor) {
    return reinterpret_cast<std::uint16_t*>(state.tensors()[size(tensor)].bytes.data());
  }

  ShardFolder folder_;
  const ModelConfig& config_;
  std::vector<Shard> embedding_, attention_, feed_forward_, heads_;
};

}  // namespace

std::unique_ptr<TestedModel> tested_shards(const std::string& folder, const ShardOptions& options) try {
  return std::make_unique<ShardedTested>(folder, options);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::unique_ptr<Reference> plain_shard_reference(const std::string& folder, int threads) {
  return plain_reference(plain_shard_weights(folder), threads);
}

}  // namespace kvtide
