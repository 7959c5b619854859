#include "model/workspace.h"

#include <algorithm>

namespace kvtide {
namespace {

template <class Of>
std::int64_t widest(const ModelConfig& c, Of of) {
  std::int64_t most = 0;
  for (int layer = 0; layer < static_cast<int>(c.layers.size()); ++layer) most = std::max(most, of(layer));
  return most;
}
std::int64_t widest_queries(const ModelConfig& c) {
  return widest(c, [&](int layer) { return heads_of(c, layer).q_width(); });
}
std::int64_t widest_hidden(const ModelConfig& c) {
  return widest(c, [&](int layer) { return hidden_of(c, layer); });
}

std::int64_t widest_row(const ModelConfig& c) {
  return std::max(
      {c.width, widest_hidden(c), expert_width(c), widest_queries(c), c.layer_inputs,
       c.experts ? c.experts->shared : 0, c.delta ? c.delta->value_width() : 0,
       c.state_space ? c.state_space->inner() : 0,
       c.latent ? std::max({c.latent->query_rank, c.latent->rank, c.latent->nope, c.heads * c.latent->value})
                : 0});
}

}  // namespace

Workspace::Workspace(const ModelConfig& c, std::int64_t max_step) : max_step_(max_step) {
  for (std::size_t i = 0; i < c.ropes.size(); ++i)
    ropes_.emplace_back(c.ropes[i], rope_dims_of(c, static_cast<int>(i)));
  const std::int64_t q_width = widest_queries(c);
  const std::int64_t kv_width = widest(c, [&](int layer) { return heads_of(c, layer).kv_width(); });
  const std::int64_t quantised = (widest_row(c) + 31) / 32 * 32;

  // First pass counts, second pass hands out: every array starts on a cache line.
  std::int64_t used = 0;
  for (int pass = 0; pass < 2; ++pass) {
    used = 0;
    const auto take = [&](std::int64_t bytes_per_token, std::int64_t more_tokens = 0) {
      std::byte* start = memory_.data() == nullptr ? nullptr : memory_.data() + used;
      used += (bytes_per_token * (max_step + more_tokens) + 63) / 64 * 64;
      return start;
    };
    const auto floats = [&](std::int64_t n, std::int64_t more_tokens = 0) {
      return reinterpret_cast<float*>(take(n * 4, more_tokens));
    };
    x_ = floats(c.width);
    normed_ = floats(c.width);
    q_ = floats(q_width);
    k_ = floats(kv_width);
    v_ = floats(kv_width);
    mixed_ = floats(q_width);
    const std::int64_t inside =
        std::max({widest_hidden(c), c.experts ? c.experts->chosen * expert_width(c) : 0,
                  c.experts ? c.experts->shared : 0});
    gate_ = floats(inside);
    up_ = floats(inside);
    cosine_.clear();
    sine_.clear();
    for (const RopeTable& rope : ropes_) {
      cosine_.push_back(floats(rope.pairs()));
      sine_.push_back(floats(rope.pairs()));
    }
    if (c.convolved) {
      const std::int64_t channels = CcaSizes(c).channels;
      cca_ = {floats(channels, 2), floats(channels, 1)};
    }
    if (c.conv_taps > 0) conv_ = {floats(3 * c.width), floats(c.width, c.conv_taps - 1), floats(c.width)};
    if (c.gated_attention) query_gate_ = floats(q_width);
    if (c.latent) {
      const LatentConfig& l = *c.latent;
      latent_ = {floats(l.query_rank), floats(c.heads * l.nope), floats(c.heads * l.rope),
                 floats(std::max(l.nope, l.rank)), floats(c.heads * l.value)};
    }
    if (c.delta) {
      const DeltaNetConfig& d = *c.delta;
      delta_ = {floats(d.channels()),    floats(d.channels()),  floats(d.value_width()),
                floats(d.value_width()), floats(d.value_heads), floats(d.value_heads)};
    }
    if (c.state_space) {
      const StateSpaceConfig& s = *c.state_space;
      space_ = {floats(s.channels()), floats(s.channels()), floats(s.inner()),
                floats(s.inner()),    floats(s.heads),      floats(s.heads)};
    }
    if (c.layer_inputs > 0)
      layer_inputs_ = {floats(static_cast<std::int64_t>(c.layers.size()) * c.layer_inputs),
                       floats(c.layer_inputs)};
    if (c.experts && c.experts->beside) beside_ = {floats(c.width), floats(c.width)};
    if (c.experts) {
      float* rows = floats(ExpertsScratch::floats_per_token(c));
      if (pass == 1) experts_ = ExpertsScratch::in(rows, c, max_step);
      experts_.gate = gate_;
      experts_.up = up_;
    }
    quants_.q = reinterpret_cast<std::int8_t*>(take(quantised));
    quants_.d = floats(quantised / 32);
    quants_.d_sum = floats(quantised / 32);
    quants_.minus_sums = reinterpret_cast<std::int32_t*>(take(quantised / 16 * 4));
    if (pass == 0) memory_ = Buffer(static_cast<std::size_t>(used));
  }
}

std::int64_t Workspace::bytes() const {
  return static_cast<std::int64_t>(memory_.size()) / max_step_ * most_tokens_;
}

}  // namespace kvtide
