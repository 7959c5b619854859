// procedural_state.h: procedural states that are fed by hand: rows and references are pure functions of
// position, layer and head, as a model's would be of the text.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "state/procedural/passages.h"
#include "state/state.h"
#include "tests/kernels/samples.h"

namespace kvtide::testing {

inline constexpr int kFedDim = 32;

// Two layers of two KV heads that share four query heads, and one with a window of its own. One head is full.
inline KvSpec procedural_spec() {
  KvSpec spec;
  std::vector<double> frequencies;
  for (int pair = 0; pair < kFedDim / 2; ++pair) frequencies.push_back(std::pow(10000.0, -pair / 16.0));
  spec.layers = {{2, kFedDim, std::nullopt, frequencies},
                 {1, kFedDim, 20, frequencies},
                 {2, kFedDim, std::nullopt, frequencies}};
  spec.capacity = 1 << 16;
  spec.max_step = 16;
  ProceduralSpec& p = spec.procedural.emplace();
  p.sinks = 3;
  p.window = 48;
  p.window_type = WindowType::as_written;
  p.block = 32;
  p.summaries = 2;
  p.levels = 2;
  p.full_rows = 128;
  p.far_from = 400;
  p.query_heads = 4;
  p.scale = 0.2f;
  p.reference_type = DType::q8_0;
  p.plans = {{{false, false, 8, 1.0f}, {true, false, 0, 1.0f}},
             {},
             {{false, false, 6, 0.5f}, {false, false, 11, 2.0f}}};
  p.frequencies = {frequencies, frequencies, frequencies};
  return spec;
}

// The same with rows of copying heads in q4_0.
inline KvSpec four_bit_spec() {
  KvSpec spec = procedural_spec();
  spec.procedural->copy_type = DType::q4_0;
  return spec;
}

// The same with everything of the past in one type, and no scores of rows, as memories that shed nothing are made.
inline KvSpec spec_with_past_in(DType type) {
  KvSpec spec = procedural_spec();
  spec.procedural->plain_type = spec.procedural->copy_type = spec.procedural->reference_type = type;
  spec.procedural->keeps_scores = false;
  return spec;
}

// As little as can be sealed, merged, thinned and seen nearer: for files that are damaged in every place.
inline KvSpec tiny_procedural_spec() {
  KvSpec spec;
  const std::vector<double> frequencies{1.0, 0.01};
  spec.layers = {{2, 4, std::nullopt, frequencies}};
  spec.capacity = 64;
  spec.max_step = 16;
  ProceduralSpec& p = spec.procedural.emplace();
  p.sinks = 1;
  p.window = p.block = 16;
  p.window_type = WindowType::as_written;
  p.summaries = 1;
  p.levels = 1;
  p.full_rows = 24;
  p.far_from = 80;
  p.query_heads = 2;
  p.reference_stride = 8;
  p.scale = 0.5f;
  p.plain_type = p.copy_type = DType::f16;
  p.plans = {{{false, false, 3, 1.0f}, {true, false, 0, 1.0f}}};
  p.frequencies = {frequencies};
  return spec;
}

inline std::vector<float> fed_numbers(Pos position, int layer, int head, int kind, int dim) {
  const auto seed =
      static_cast<std::uint64_t>(((position % (Pos{1} << 40) * 8 + layer) * 64 + head) * 4 + kind);
  return normals(static_cast<std::size_t>(dim), seed * 0x9e3779b97f4a7c15u);
}

// The tokens of a text of this length: every third passage is of tokens that stand nowhere else.
inline std::vector<TokenId> fed_tokens(Pos length) {
  std::vector<TokenId> tokens;
  for (Pos p = 0; p < length; ++p)
    tokens.push_back(static_cast<TokenId>(p / kPassage % 3 == 0 ? 1000 + p : p % 7));
  return tokens;
}

// Reads `tokens` more, at most `chunk` at once. after: called whenever something has changed. text: of tokens of
// its own.
inline void feed(KvState& state, ThreadPool& pool, std::int64_t tokens, std::int64_t chunk = 16,
                 const std::function<void()>& after = {}, const std::vector<TokenId>& text = {}) {
  const Kernels& kernels = best_kernels();
  const int query_heads = state.spec().procedural->query_heads;
  while (tokens > 0) {
    KvState::Step step = state.begin(std::min({tokens, chunk, state.step_room()}));
    for (int layer = 0; layer < static_cast<int>(state.spec().layers.size()); ++layer) {
      const LayerSpec& shape = state.spec().layers[static_cast<std::size_t>(layer)];
      for (std::int64_t t = step.tokens(); t-- > 0;) {  // threads take tokens in any order
        const Pos position = step.first() + t;
        for (int head = 0; head < shape.kv_heads; ++head)
          step.write(kernels.elementwise, layer, head, t,
                     fed_numbers(position, layer, head, 0, shape.head_dim).data(),
                     fed_numbers(position, layer, head, 1, shape.head_dim).data());
        if (!step.observes(layer, t)) continue;
        std::vector<float> masses;
        for (int head = 0; head < query_heads; ++head) {
          step.observe_query(kernels, layer, t, head,
                             fed_numbers(position, layer, head, 2, shape.head_dim).data());
          masses.push_back(6.0f + fed_numbers(position, layer, head, 3, shape.head_dim)[0]);
        }
        step.observe_log_mass(layer, t, masses.data());
      }
      step.spans(layer);  // a forward pass reads them, and rows that nothing sees any more go
    }
    tokens -= step.tokens();
    step.commit();
    if (after) after();
    state.seal_if_due(pool, kernels, text.empty() ? fed_tokens(state.position()) : text);
    if (after) after();
  }
}

}  // namespace kvtide::testing
