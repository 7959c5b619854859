// masks.h: which positions a query sees, written down as the masks that exported models take.
//
// A chunk of T tokens is at positions first .. first + T - 1 of a state with S rows, row i holding position
// i. When fewer tokens are real (a short last chunk), the rest see nothing and are written nowhere. Every
// mask follows from one rule (sees); the engine's attention obeys the same one. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

// Whether the query at position `query` sees the row at `position`: nothing that comes later, and only the
// newest `attention_size` positions, its own included (nullopt: all), beside `sinks` positions at the start.
bool sees(Pos query, Pos position, std::optional<std::int64_t> attention_size = std::nullopt,
          std::int64_t sinks = 0);

// What f16 holds and what still is a number when it is added to any score.
inline constexpr float kHidden = -1e4f;

struct ChunkMask {
  Pos first = 0;                                              // position of the chunk's first token
  std::int64_t tokens = 0;                                    // T
  std::int64_t rows = 0;                                      // S
  std::optional<std::int64_t> real = std::nullopt;            // tokens that are real; nullopt: all of them
  std::optional<std::int64_t> attention_size = std::nullopt;  // newest positions a query sees; nullopt: all
  std::int64_t sinks = 0;                                     // positions that stay visible
};

// [1, 1, T, S], to be added to the scores: 0 where query t sees row s, `hidden` elsewhere.
// Throws Error(invalid_argument): an extent below 1, real tokens beyond T or S, a hidden value that is not
// finite and negative, an attention size below 1.
std::vector<float> attention_mask(const ChunkMask& chunk, float hidden = kHidden);

// [1, 1, S, T]: column t has a single 1, in row first + t, where the token's key and value are to be written.
// The same errors; attention size and sinks do not matter.
std::vector<float> write_mask(const ChunkMask& chunk);

// [1, 1, S, S] of all positions at once, 0 or -infinity: row p sees the newest `attention_size` positions up
// to itself; rows beyond `position` see nothing. Throws Error(invalid_argument): a negative length or
// position, an attention size below 1.
std::vector<float> attention_size_mask(std::int64_t length, std::int64_t attention_size, Pos position);

}  // namespace kvtide
