#include "shards/sharded.h"

#include <algorithm>
#include <functional>

#include "base/stopwatch.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "kvtide/masks.h"
#include "shards/shard_folder.h"
#include "shards/tokenizer_export.h"

namespace kvtide {
namespace {

// The masks of one chunk; layers with different windows see different slots.
std::vector<float> visible(const ChunkMask& chunk, std::optional<std::int64_t> window) {
  ChunkMask mask = chunk;
  mask.attention_size = window;
  return attention_mask(mask);
}

}  // namespace

ShardSeconds operator-(ShardSeconds now, const ShardSeconds& before) {
  now.calls -= before.calls;
  now.embedding -= before.embedding;
  now.head -= before.head;
  std::transform(now.attention.begin(), now.attention.end(), before.attention.begin(), now.attention.begin(),
                 std::minus<>());
  std::transform(now.mlp.begin(), now.mlp.end(), before.mlp.begin(), now.mlp.begin(), std::minus<>());
  return now;
}

ShardedModel::ShardedModel(const std::string& folder, const ShardOptions& options)
    : folder_(folder, options), tokenizer_(open_shard_tokenizer(folder, folder_.internals().manifest)) {
  std::vector<const ShardInfo*> attention(static_cast<std::size_t>(folder_.layers())),
      feed_forward = attention, heads;
  for (const ShardInfo& info : folder_.shards()) {
    const auto layer = static_cast<std::size_t>(info.layer);
    if (info.kind == ShardKind::embedding) embedding_.push_back(folder_.open(info.name));
    if (info.kind == ShardKind::attention) attention[layer] = &info;
    if (info.kind == ShardKind::mlp || info.kind == ShardKind::moe) feed_forward[layer] = &info;
    if (info.kind == ShardKind::head) heads.push_back(&info);
  }
  for (std::size_t layer = 0; layer < attention.size(); ++layer) {
    Shard shard = folder_.open(attention[layer]->name);
    ShardState state = shard.make_state();
    layers_.push_back({std::move(shard), folder_.open(feed_forward[layer]->name), std::move(state)});
  }
  std::sort(heads.begin(), heads.end(),
            [](const ShardInfo* a, const ShardInfo* b) { return a->vocab_first < b->vocab_first; });
  for (const ShardInfo* info : heads) heads_.push_back(folder_.open(info->name));
  seconds_.attention.resize(layers_.size());
  seconds_.mlp.resize(layers_.size());
}

std::int64_t ShardedModel::weights_bytes() const {
  std::int64_t sum = embedding_.front().weights_bytes();
  for (const Layer& layer : layers_)
    sum += layer.attention.weights_bytes() + layer.feed_forward.weights_bytes();
  for (const Shard& head : heads_) sum += head.weights_bytes();
  return sum;
}

std::int64_t ShardedModel::state_bytes() const {
  std::int64_t sum = 0;
  for (const Layer& layer : layers_) sum += layer.state.bytes();
  return sum;
}

void ShardedModel::truncate(Pos n) {
  if (n < 0 || n > position_)
    throw Error(ErrorCode::invalid_argument,
                cat("cannot truncate to ", n, ": the shards hold ", position_, " positions"));
  for (Layer& layer : layers_) layer.state.truncate(std::min(n, layer.state.position()));
  position_ = n;
}

std::vector<float> ShardedModel::run_layers(std::span<const TokenId> tokens) {
  const auto columns = static_cast<std::int64_t>(tokens.size());
  ChunkMask chunk;
  chunk.first = position_;
  chunk.tokens = columns;
  chunk.rows = folder_.slots();
  const std::vector<float> write = write_mask(chunk);
  std::vector<std::vector<float>> cosine, sine;
  for (int rope = 0; rope < folder_.ropes(); ++rope) {
    cosine.emplace_back(static_cast<std::size_t>(columns * folder_.rope_half()));
    sine.emplace_back(cosine.back().size());
    folder_.rope_rows(rope, position_, columns, cosine.back(), sine.back());
  }
  const Stopwatch embedding;
  std::vector<float> x = embedding_.front().predict(tokens, position_);
  seconds_.embedding += embedding.seconds();
  std::vector<float> seen, router(static_cast<std::size_t>(columns * folder_.router_width()));
  const std::optional<std::int64_t>* seen_by = nullptr;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Layer& layer = layers_[i];
    const ShardInfo& info = layer.attention.info();
    const Stopwatch attention;
    if (seen_by == nullptr || *seen_by != info.window) seen = visible(chunk, info.window);
    seen_by = &info.window;
    ShardInputs inputs;
    inputs.x = x;
    if (folder_.rope_half() > 0) {
      inputs.rope_cos = cosine[static_cast<std::size_t>(info.rope)];
      inputs.rope_sin = sine[static_cast<std::size_t>(info.rope)];
    }
    inputs.attention_mask = seen;
    inputs.write_mask = write;
    x = layer.attention.predict(inputs, layer.state);
    seconds_.attention[i] += attention.seconds();
    const Stopwatch mlp;
    x = router.empty() ? layer.feed_forward.predict(x) : layer.feed_forward.predict(x, router);
    seconds_.mlp[i] += mlp.seconds();
  }
  return x;
}

std::span<const float> ShardedModel::read(std::span<const TokenId> tokens, std::int64_t wanted) {
  const auto columns = static_cast<std::int64_t>(tokens.size());
  if (columns < 1 || columns > folder_.t_max() || wanted < 0 || wanted > columns)
    throw Error(ErrorCode::invalid_argument,
                cat("a call takes 1 to ", folder_.t_max(),
                    " tokens and gives logits of some of them, not of ", wanted, " of ", columns));
  if (columns > folder_.slots() - position_)
    throw Error(ErrorCode::context_full, cat(columns, " more tokens do not fit: ", position_, " of ",
                                             folder_.slots(), " slots are in use"));
  const std::int64_t vocabulary = folder_.vocabulary();
  logits_.assign(static_cast<std::size_t>(wanted * vocabulary), 0.0f);
  try {
    const std::vector<float> x = run_layers(tokens);
    const Stopwatch head;
    if (wanted > 0) {
      // The columns that are asked for, on their own: the heads are the largest shards.
      std::vector<float> last;
      for (std::int64_t channel = 0; channel < folder_.width(); ++channel)
        for (std::int64_t t = columns - wanted; t < columns; ++t)
          last.push_back(x[static_cast<std::size_t>(channel * columns + t)]);
      for (const Shard& shard : heads_) {
        const std::vector<float> part = shard.predict(last);
        const std::int64_t first = shard.info().vocab_first, count = shard.info().vocab_last - first;
        for (std::int64_t id = 0; id < count; ++id)
          for (std::int64_t t = 0; t < wanted; ++t)
            logits_[static_cast<std::size_t>(t * vocabulary + first + id)] =
                part[static_cast<std::size_t>(id * wanted + t)];
      }
    }
    seconds_.head += head.seconds();
  } catch (...) {
    truncate(position_);
    throw;
  }
  position_ += columns;
  ++seconds_.calls;
  return logits_;
}

}  // namespace kvtide
