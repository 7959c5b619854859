// span.h: what attention reads. The state hands out spans; nobody else computes an offset into a cache.
//
// Invariants
//   1. rows >= 1, and keys/values stay valid until the next change of the owning state.
//   2. log_mass[i] is added to the score of row i before the softmax, and mass to the score of every row.
//      Without log_mass (nullptr) every row stands for one token.
//   3. Rows of a positioned span are consecutive: row i was written at position *first + i. A span without a
//      position is always visible.
//   4. Spans of a list come in ascending order of position, those without a position and sinks first.
//   5. A span is seen `shift` tokens nearer to the reader than it was written. A reader beyond `reader_limit`
//      sees it as a reader at that position would. Keys stay as they are: the query is rotated to the
//      position min(position - shift, reader_limit).
//   6. Keys and values of a `spread` span lie as their Hadamard transforms (hadamard.h).
//   7. Of a spread span with `mean_key` the keys are what is stored plus that: one row, transformed likewise.
//   8. With `rotation` the keys are turned instead, each by the same angles, when they are read. So spans at
//      many distances need no rotated copies of the queries. Rows of the span keep their distances from one
//      another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kvtide/types.h"
#include "tensor/dtype.h"

namespace kvtide {

struct Span {  // of one layer and one KV head: heads of a layer may hold different numbers of rows
  const std::byte* keys = nullptr;    // [rows][head_dim], rows key_stride bytes apart
  const std::byte* values = nullptr;  // [rows][head_dim], rows value_stride bytes apart
  DType key_type = DType::f16;        // f32, f16, q8_0 or q4_0
  DType value_type = DType::f16;
  std::int64_t key_stride = 0;
  std::int64_t value_stride = 0;
  std::int64_t rows = 0;
  const float* log_mass = nullptr;  // [rows], nats
  float mass = 0.0f;                // nats
  std::optional<Pos> first;
  std::int64_t shift = 0;           // tokens
  std::optional<Pos> reader_limit;  // nullopt: seen from where the reader is
  bool sink = false;                // visible to every later query, whatever its window
  const float* rotation = nullptr;  // [2][pairs]: cosines, then sines of the turn of every key; or nullptr
  std::int64_t rotation_pairs = 0;  // pairs (i, i + pairs) that are turned
  bool spread = false;              // keys and values are stored as their Hadamard transforms
  const float* mean_key = nullptr;  // [head_dim], what was taken off every key of a spread span; or nullptr
  std::optional<Pos> last_reader;   // queries beyond this position do not see the span
};

}  // namespace kvtide
