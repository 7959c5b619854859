// attend_kernel.h: the inner step of attention, one row of function pointers per instruction set.
//
// fold_tile takes up to 64 cached rows and up to 32 queries and folds the rows' softmax partial (max, sum,
// out) into the queries' running partials. A query's result depends on its own visible rows only: never on
// which other queries or invisible rows travel in the call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace kvtide {

inline constexpr int kTileRows = 64;     // rows of one tile, aligned to absolute positions
inline constexpr int kQueryBlock = 128;  // queries of one call
inline constexpr int kMaxHeadDim = 576;  // larger heads are refused when a model is loaded

struct AttendTile {
  const std::byte* keys;  // first present row
  const std::byte* values;
  DType key_type;
  DType value_type;
  std::int64_t key_stride;  // bytes
  std::int64_t value_stride;
  int begin;  // present rows are [begin, end) of the tile's 64 places
  int end;
  const float* log_mass;  // of the first present row, or nullptr
  const float* rotation =
      nullptr;  // [2][rotation_pairs] cosines, then sines: the turn of every key as it is read; or nullptr
  int rotation_pairs = 0;
  float mass = 0.0f;  // added to every row's log mass
};

// Queries and running partials; rows are padded_dim floats apart, padded with zeros beyond the head
// dimension.
struct AttendQueries {
  int count;  // 1 .. kQueryBlock
  int head_dim;
  int padded_dim;              // head_dim rounded up to a multiple of 16
  float scale;                 // applied to q.k
  const float* q;              // [count][padded_dim]
  const std::uint32_t* pairs;  // the same from this table's pack_queries, for fold_tile_bf16; else nullptr
  const int* lo;               // [count] visible places of this tile: [lo, hi)
  const int* hi;
  const std::uint32_t* words = nullptr;  // from quantize_queries, for fold_tile_bf16 of q8_0 keys
  const float* steps = nullptr;
};

struct AttendPartials {
  float* max;  // [count], -infinity before the first visible row
  float* sum;  // [count]
  float* out;  // [count][padded_dim], not yet divided by sum
};

struct AttendRow {
  const char* isa;
  void (*fold_tile)(const AttendTile& tile, const AttendQueries& queries,
                    const AttendPartials& into) noexcept;
  // The same with queries, keys, values and softmax weights rounded to bf16, and f32 sums; q8_0 rows are met
  // in whole numbers as they lie, by queries and weights that are rounded to sixteen bits.
  void (*fold_tile_bf16)(const AttendTile& tile, const AttendQueries& queries,
                         const AttendPartials& into) noexcept;
  // pairs, at most count * padded_dim words: the rows [count][padded_dim] rounded to bf16, as this table takes them.
  void (*pack_queries)(int count, int padded_dim, const float* rows, std::uint32_t* pairs) noexcept;
  // words [count][dim / 2], steps [count][dim / 32]: the rows [count][dim] as q8_0 keys meet them. dim is a
  // multiple of 32.
  void (*quantize_queries)(int count, int dim, const float* rows, std::uint32_t* words,
                           float* steps) noexcept;
  // Folds partials `from` into `into`, both of `count` queries, as if from's rows came after into's.
  void (*merge)(int count, int padded_dim, const AttendPartials& from, const AttendPartials& into) noexcept;
  // Turns rows [count][padded_dim] back by `rotation` ([2][pairs] as in AttendTile, or nullptr) and
  // transforms them as hadamard.h says. head_dim is a multiple of 32.
  void (*spread)(int count, int padded_dim, int head_dim, const float* rotation, int pairs,
                 float* rows) noexcept;
  // `rounds` rounds of probe_flop operations of the kind that fold_tile_bf16 is made of (kernels/probe.h).
  float (*probe_pairs)(std::int64_t rounds) noexcept;
  std::int64_t probe_flop;
};

extern const AttendRow kAttendScalar;
extern const AttendRow kAttendAvx2;
extern const AttendRow kAttendAvx512;
extern const AttendRow kAttendAvx512Bf16;  // the same bits with bf16 instructions
extern const AttendRow kAttendAmx;         // likewise
extern const AttendRow kAttendNeon;
extern const AttendRow kAttendNeonBf16;  // likewise

}  // namespace kvtide
