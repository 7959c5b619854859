// filled_state.h: appending rows with known numbers to a state, and telling which rows a query sees.
#pragma once

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "kernels/kernels.h"
#include "state/state.h"
#include "tests/state/state_rows.h"

namespace kvtide::testing {

inline KvSpec small_spec(std::int64_t capacity = 400, std::int64_t max_step = 64, DType dtype = DType::f32) {
  KvSpec spec;
  spec.layers = {{2, 32, std::nullopt}};
  spec.key_type = spec.value_type = dtype;
  spec.capacity = capacity;
  spec.max_step = max_step;
  return spec;
}

// Writes rows whose text is their position, plus `text`.
inline void fill(KvState::Step& step, const KvSpec& spec, std::int64_t text = 0) {
  static const ElementwiseRow& kernels = best_kernels().elementwise;
  for (int layer = 0; layer < static_cast<int>(spec.layers.size()); ++layer) {
    const LayerSpec& l = spec.layers[static_cast<std::size_t>(layer)];
    for (int head = 0; head < l.kv_heads; ++head)
      for (std::int64_t t = 0; t < step.tokens(); ++t)
        step.write(kernels, layer, head, t,
                   row_numbers(text + step.first() + t, layer, head, true, l.head_dim).data(),
                   row_numbers(text + step.first() + t, layer, head, l.values_in_keys, l.head_dim).data());
  }
}

inline void append(KvState& state, std::int64_t tokens, std::int64_t text = 0) {
  while (tokens > 0) {
    KvState::Step step = state.begin(std::min(tokens, state.spec().max_step));
    fill(step, state.spec(), text);
    tokens -= step.tokens();
    step.commit();
  }
}

// The rows that the next token would see in a layer's first head, apart from its own, as "0-9 12-40>3": a run
// of positions, and by how much it is seen nearer. Contents are compared with fill(state, spec, text).
inline std::string seen(KvState& state, int layer = 0, std::int64_t text = 0) {
  std::string runs;
  KvState::Step step = state.begin(1);
  const LayerSpec& l = state.spec().layers[static_cast<std::size_t>(layer)];
  Pos first = 0, last = 0;
  std::int64_t shift = 0;
  const auto close = [&] {
    if (first < last) runs += cat(runs.empty() ? "" : " ", first, "-", last - 1);
    if (first < last && shift != 0) runs += cat(">", shift);
  };
  const auto spans = step.spans(layer);
  for (const Span& span : spans[0]) {
    for (std::int64_t i = 0; i < span.rows && *span.first + i < step.first(); ++i) {
      const auto key = row_numbers(text + *span.first + i, layer, 0, true, l.head_dim);
      const auto value = row_numbers(text + *span.first + i, layer, 0, l.values_in_keys, l.head_dim);
      if (!compare_row(span.key_type, span.keys + i * span.key_stride, key).empty() ||
          !compare_row(span.value_type, span.values + i * span.value_stride, value).empty())
        return cat("position ", *span.first + i, " holds something else");
    }
    const Pos end = std::min(*span.first + span.rows, step.first());
    if (*span.first != last || span.shift != shift) {
      close();
      first = *span.first;
      shift = span.shift;
    }
    last = end;
  }
  close();
  return runs;
}

}  // namespace kvtide::testing
