// hybrid_shards.h: the made-up model of hybrid_reference.h as ports run it: one shard per layer, each with a
// state of its own, driven by a host that passes tokens, positions and masks; and twelve ways to get it
// wrong.
//
// A shard writes the rows of up to four tokens into slots and attends to all slots through a mask. f32
// throughout; with `integers`, weights but those of the output projection are rounded to 8 bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tests/validate/hybrid_reference.h"

namespace kvtide::testing {

enum class Fault {
  none,
  write_slot,        // every token of a call is written into the call's first slot
  off_by_one,        // positions are counted from 1
  short_mask,        // one token: the mask shows that one only
  stale_rows,        // the mask shows all that was ever written
  interleaved,       // [heads, tokens] read as [tokens, heads]
  rope_width,        // all of a head is rotated
  history_dropped,   // a call begins with no past for convolution and late value
  halves_swapped,    // the late value in head 0
  shared_state,      // one state for all shards
  recreated,         // a new state for every call
  tensor_scale,      // one 8-bit scale for a whole tensor
  saturates,         // the position stops at the last slot
  rows_interleaved,  // keys and values: [heads, tokens] read as [tokens, heads]
  mask_of_call,      // the mask covers the call only, whatever its length
  not_causal,        // a call's tokens see one another
  history_kept,      // taking tokens back leaves the past of convolution and late value
  shared_sequences,  // make_state gives the same memory again
};

class HybridShards final : public TestedModel {
 public:
  static constexpr std::int64_t kLargest = 4;

  // only: the layer whose arithmetic has the fault; -1: all have it.
  HybridShards(const HybridWeights& weights, Fault fault, bool integers = false, int only = -1)
      : weights_(weights), all_(fault), fault_(fault), only_(only) {
    if (!integers) return;
    for (HybridLayer& layer : weights_.layers)
      for (Weight* m :
           {&layer.query, &layer.key, &layer.value_now, &layer.value_late, &layer.up, &layer.down})
        round(*m, fault == Fault::tensor_scale);
  }

  TestedShape shape() const override {
    TestedShape shape;
    shape.name = "hybrid";
    shape.layers.assign(weights_.layers.size(), {kKvHeads, kDim, std::nullopt});
    shape.width = kWidth;
    shape.vocab = kVocab;
    shape.largest_chunk = kLargest;
    shape.gives_hidden = shape.isolates = shape.gives_rows = shape.truncates = true;
    shape.forks = shape.snapshots = shape.poisons = shape.keeps_capacity = true;
    return shape;
  }

  std::unique_ptr<TestedState> make_state(std::int64_t capacity) override {
    auto made = std::make_unique<Sequence>();
    made->memory = std::make_shared<Memory>(capacity, weights_.layers.size());
    if (fault_ == Fault::shared_sequences) {
      if (kept_ == nullptr || kept_->slots != capacity) kept_ = made->memory;
      made->memory = kept_;
    }
    return made;
  }

  Reading read(TestedState& state, std::span<const TokenId> tokens, std::span<const float> inputs) override {
    auto& sequence = static_cast<Sequence&>(state);
    const auto count = static_cast<std::int64_t>(tokens.size());
    if (fault_ == Fault::recreated)
      sequence.memory = std::make_shared<Memory>(sequence.memory->slots, weights_.layers.size());
    Memory& memory = *sequence.memory;
    if (sequence.position + count > memory.slots && fault_ != Fault::saturates)
      throw Error(ErrorCode::context_full, "no slot is left");
    std::vector<float> x;
    for (const TokenId token : tokens)
      for (std::int64_t i = 0; i < kWidth; ++i) x.push_back(weights_.embedding.at(token, i));
    Reading reading;
    reading.hidden = x;
    for (std::size_t layer = 0; layer < weights_.layers.size(); ++layer) {
      if (!inputs.empty()) {
        const auto given = inputs.subspan(layer * x.size(), x.size());
        x.assign(given.begin(), given.end());
      }
      fault_ = only_ < 0 || static_cast<int>(layer) == only_ ? all_ : Fault::none;
      predict(weights_.layers[layer], memory.shards[all_ == Fault::shared_state ? 0 : layer], sequence, x,
              count);
      reading.hidden.insert(reading.hidden.end(), x.begin(), x.end());
    }
    fault_ = all_;
    sequence.position += count;
    sequence.back = 0;
    sequence.most = std::max(sequence.most, sequence.position);
    for (std::int64_t t = 0; t < count; ++t) {
      const auto row = normed(x.data() + t * kWidth);
      for (std::int64_t v = 0; v < kVocab; ++v) {
        float sum = 0.0f;
        for (std::int64_t i = 0; i < kWidth; ++i)
          sum += weights_.embedding.at(v, i) * row[static_cast<std::size_t>(i)];
        reading.logits.push_back(sum);
      }
    }
    return reading;
  }

  HeldRows rows(TestedState& state, int layer) override {
    const auto& sequence = static_cast<Sequence&>(state);
    const Shard& shard =
        sequence.memory->shards[fault_ == Fault::shared_state ? 0 : static_cast<std::size_t>(layer)];
    HeldRows out{kKvHeads, std::min(sequence.position, sequence.memory->slots), kDim, 0, {}, {}};
    for (std::int64_t g = 0; g < kKvHeads; ++g)
      for (std::int64_t row = 0; row < out.rows; ++row)
        for (std::int64_t i = 0; i < kDim; ++i) {
          out.keys.push_back(shard.k[place(sequence, g, row) + static_cast<std::size_t>(i)]);
          out.values.push_back(shard.v[place(sequence, g, row) + static_cast<std::size_t>(i)]);
        }
    return out;
  }
  void truncate(TestedState& state, Pos length) override {
    auto& sequence = static_cast<Sequence&>(state);
    sequence.back = fault_ == Fault::history_kept ? sequence.position - length : 0;
    sequence.position = length;
  }
  std::unique_ptr<TestedState> fork(TestedState& state) override { return through_snapshot(state); }
  std::unique_ptr<TestedState> through_snapshot(TestedState& state) override {
    auto copy = std::make_unique<Sequence>(static_cast<Sequence&>(state));
    copy->memory = std::make_shared<Memory>(*copy->memory);
    return copy;
  }
  void poison(TestedState& state, float value) override {
    auto& sequence = static_cast<Sequence&>(state);
    for (Shard& shard : sequence.memory->shards)
      for (std::int64_t g = 0; g < kKvHeads; ++g)
        for (std::int64_t slot = sequence.position; slot < sequence.memory->slots; ++slot)
          for (std::int64_t i = 0; i < kDim; ++i)
            shard.k[place(sequence, g, slot) + static_cast<std::size_t>(i)] =
                shard.v[place(sequence, g, slot) + static_cast<std::size_t>(i)] = value;
  }

 private:
  struct Shard {
    std::vector<float> k, v;     // [kv_heads][slots][dim]
    std::vector<float> u, late;  // by slot: inputs of the convolution, values for the next token
  };
  struct Memory {
    Memory(std::int64_t count, std::size_t layers) : slots(count) {
      const auto n = static_cast<std::size_t>(count);
      shards.assign(layers, {std::vector<float>(n * kKvHeads * kDim), std::vector<float>(n * kKvHeads * kDim),
                             std::vector<float>(n * kMixed), std::vector<float>(n * kDim)});
    }
    std::int64_t slots;
    std::vector<Shard> shards;
  };
  struct Sequence final : TestedState {
    std::shared_ptr<Memory> memory;
    Pos position = 0, most = 0;
    std::int64_t back = 0;
  };

  static std::size_t place(const Sequence& s, std::int64_t head, std::int64_t slot) {
    return static_cast<std::size_t>((head * s.memory->slots + slot) * kDim);
  }
  static void round(Weight& m, bool whole) {
    const auto largest = [&](std::int64_t from, std::int64_t to) {
      float top = 0.0f;
      for (std::int64_t i = from * m.columns; i < to * m.columns; ++i)
        top = std::max(top, std::abs(m.w[static_cast<std::size_t>(i)]));
      return top;
    };
    for (std::int64_t r = 0; r < m.rows; ++r) {
      const float step = (whole ? largest(0, m.rows) : largest(r, r + 1)) / 127.0f;
      for (std::int64_t c = 0; c < m.columns; ++c) {
        float& w = m.w[static_cast<std::size_t>(r * m.columns + c)];
        w = std::nearbyint(w / step) * step;
      }
    }
  }
  static std::vector<float> normed(const float* x) {
    float square = 0.0f;
    for (std::int64_t i = 0; i < kWidth; ++i) square += x[i] * x[i];
    const float scale = 1.0f / std::sqrt(square / static_cast<float>(kWidth) + 1e-6f);
    std::vector<float> out(kWidth);
    for (std::int64_t i = 0; i < kWidth; ++i) out[static_cast<std::size_t>(i)] = x[i] * scale;
    return out;
  }
  static std::vector<float> product(const Weight& m, const std::vector<float>& x) {
    std::vector<float> y(static_cast<std::size_t>(m.rows));
    for (std::int64_t r = 0; r < m.rows; ++r)
      for (std::int64_t c = 0; c < m.columns; ++c)
        y[static_cast<std::size_t>(r)] += m.at(r, c) * x[static_cast<std::size_t>(c)];
    return y;
  }
  void rotate(float* head, Pos position) const {
    const bool wide = fault_ == Fault::rope_width;
    const std::int64_t pairs = wide ? kDim / 2 : kPairs;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const float frequency = std::pow(10000.0f, -static_cast<float>(i) / static_cast<float>(pairs));
      const float angle = static_cast<float>(position) * frequency, a = head[i], b = head[i + pairs];
      head[i] = a * std::cos(angle) - b * std::sin(angle);
      head[i + pairs] = a * std::sin(angle) + b * std::cos(angle);
    }
  }
  // [heads][tokens] read as [tokens][heads].
  static void interleave(std::vector<std::vector<float>>& rows, std::int64_t heads) {
    const auto right = rows;
    const auto count = static_cast<std::int64_t>(rows.size());
    for (std::int64_t flat = 0; flat < count * heads; ++flat)
      std::copy_n(right[static_cast<std::size_t>(flat % count)].begin() + flat / count * kDim, kDim,
                  rows[static_cast<std::size_t>(flat / heads)].begin() + flat % heads * kDim);
  }

  // x [tokens][width] of positions n, n + 1, ...: through the layer, in place.
  void predict(const HybridLayer& w, Shard& shard, const Sequence& s, std::vector<float>& x,
               std::int64_t count) const {
    const Pos n = s.position;
    const std::int64_t slots = s.memory->slots;
    const auto slot_of = [&](std::int64_t t) {
      return fault_ == Fault::saturates ? std::min(n + t, slots - 1) : n + t;
    };
    std::vector<std::vector<float>> queries, keys, values, mixed;
    for (std::int64_t t = 0; t < count; ++t) {
      const auto in = normed(x.data() + t * kWidth);
      auto u = product(w.query, in);
      const auto kh = product(w.key, in);
      u.insert(u.end(), kh.begin(), kh.end());
      const Pos here = slot_of(t);
      const auto past = [&](std::int64_t back) -> std::int64_t {  // slot of the token so far back; -1: none
        if (back > t && fault_ == Fault::history_dropped) return -1;
        // What was carried is that of the newest token ever read, not of the one that was gone back to.
        const std::int64_t off = back > t ? s.back : 0;
        return slot_of(t - back) + off;
      };
      auto y = u;
      for (std::int64_t c = 0; c < kMixed; ++c)
        for (std::int64_t tap = 0; tap < 3; ++tap) {
          const std::int64_t at = tap < 2 ? past(2 - tap) : -1;
          if (tap == 2) y[static_cast<std::size_t>(c)] += w.taps.at(c, tap) * u[static_cast<std::size_t>(c)];
          if (at >= 0)
            y[static_cast<std::size_t>(c)] +=
                w.taps.at(c, tap) * shard.u[static_cast<std::size_t>(at * kMixed + c)];
        }
      for (std::int64_t h = 0; h < kHeads + kKvHeads; ++h)
        rotate(y.data() + h * kDim, here + (fault_ == Fault::off_by_one));
      auto now = product(w.value_now, in);
      std::vector<float> before(kDim);
      if (past(1) >= 0) std::copy_n(shard.late.begin() + past(1) * kDim, kDim, before.begin());
      const auto late = product(w.value_late, in);
      std::copy(u.begin(), u.end(), shard.u.begin() + here * kMixed);
      std::copy(late.begin(), late.end(), shard.late.begin() + here * kDim);
      if (fault_ == Fault::halves_swapped) std::swap(now, before);
      now.insert(now.end(), before.begin(), before.end());
      queries.emplace_back(y.begin(), y.begin() + kHeads * kDim);
      keys.emplace_back(y.begin() + kHeads * kDim, y.end());
      values.push_back(now);
    }
    if (fault_ == Fault::rows_interleaved) interleave(keys, kKvHeads), interleave(values, kKvHeads);
    for (std::int64_t t = 0; t < count; ++t)
      for (std::int64_t g = 0; g < kKvHeads; ++g) {
        const std::int64_t slot = fault_ == Fault::write_slot ? n : slot_of(t);
        const auto to = static_cast<std::ptrdiff_t>(place(s, g, slot));
        std::copy_n(keys[static_cast<std::size_t>(t)].begin() + g * kDim, kDim, shard.k.begin() + to);
        std::copy_n(values[static_cast<std::size_t>(t)].begin() + g * kDim, kDim, shard.v.begin() + to);
      }
    for (std::int64_t t = 0; t < count; ++t) {
      std::vector<float>& out = mixed.emplace_back(kHeads * kDim);
      for (std::int64_t h = 0; h < kHeads; ++h) {
        std::vector<float> scores(static_cast<std::size_t>(slots), -1e4f);
        for (std::int64_t slot = 0; slot < slots; ++slot) {
          if (!visible(s, n, t, count, slot)) continue;
          float score = 0.0f;
          for (std::int64_t i = 0; i < kDim; ++i)
            score += queries[static_cast<std::size_t>(t)][static_cast<std::size_t>(h * kDim + i)] *
                     shard.k[place(s, h / 2, slot) + static_cast<std::size_t>(i)];
          scores[static_cast<std::size_t>(slot)] = score / std::sqrt(static_cast<float>(kDim));
        }
        const float top = *std::max_element(scores.begin(), scores.end());
        float mass = 0.0f;
        for (std::int64_t slot = 0; slot < slots; ++slot) {
          const float weight = std::exp(scores[static_cast<std::size_t>(slot)] - top);
          mass += weight;
          for (std::int64_t i = 0; i < kDim; ++i)
            out[static_cast<std::size_t>(h * kDim + i)] +=
                weight * shard.v[place(s, h / 2, slot) + static_cast<std::size_t>(i)];
        }
        for (std::int64_t i = 0; i < kDim; ++i) out[static_cast<std::size_t>(h * kDim + i)] /= mass;
      }
    }
    if (fault_ == Fault::interleaved) interleave(mixed, kHeads);
    for (std::int64_t t = 0; t < count; ++t) {
      float* row = x.data() + t * kWidth;
      const auto attended = product(w.output, mixed[static_cast<std::size_t>(t)]);
      for (std::int64_t i = 0; i < kWidth; ++i) row[i] += attended[static_cast<std::size_t>(i)];
      auto up = product(w.up, normed(row));
      for (float& v : up) v /= 1.0f + std::exp(-v);
      const auto down = product(w.down, up);
      for (std::int64_t i = 0; i < kWidth; ++i) row[i] += down[static_cast<std::size_t>(i)];
    }
  }

  bool visible(const Sequence& s, Pos n, std::int64_t t, std::int64_t count, std::int64_t slot) const {
    const Pos own = fault_ == Fault::saturates ? std::min(n + t, s.memory->slots - 1) : n + t;
    if (fault_ == Fault::short_mask && count == 1) return slot == own;
    if (fault_ == Fault::mask_of_call && slot < n) return false;
    if (fault_ == Fault::not_causal) return slot < n + count;
    if (fault_ == Fault::stale_rows && slot < s.most) return true;
    return slot <= own;
  }

  HybridWeights weights_;
  Fault all_, fault_;  // fault_: of the layer that runs
  int only_;
  std::shared_ptr<Memory> kept_;
};

}  // namespace kvtide::testing
