// types.h: the few scalar types that every floor shares. Positions, layers and tokens cannot be mixed up by
// accident.
#pragma once

#include <compare>
#include <cstdint>

namespace kvtide {

using TokenId = std::int32_t;  // index into the vocabulary
using Pos = std::int64_t;      // position of a token in its text, counted from 0

// Of keys and values as they are kept, and of named tensors; only the position of a named state is i32.
enum class ElementType { f16, f32, q8_0, i32, q4_0 };
const char* element_type_name(ElementType type) noexcept;

// Half-open range of positions [first, last).
struct PosRange {
  Pos first = 0;
  Pos last = 0;
  Pos size() const { return last - first; }
  friend bool operator==(const PosRange&, const PosRange&) = default;
};

// A bounded memory: the first `sinks` positions and the newest `window` ones.
struct Rolling {
  std::int64_t sinks = 4;
  std::int64_t window = 1024;
  friend bool operator==(const Rolling&, const Rolling&) = default;
};

}  // namespace kvtide
