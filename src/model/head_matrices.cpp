#include "model/head_matrices.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "base/as_size.h"
#include "kernels/codec.h"

namespace kvtide {
namespace {

constexpr std::int64_t kColumns = 32;  // columns that are worked on together: 16 KiB of 128 keys

void copy_columns(const float* from, std::int64_t from_width, std::int64_t keys, std::int64_t count,
                  float* to, std::int64_t to_width) {
  for (std::int64_t i = 0; i < keys; ++i) std::copy_n(from + i * from_width, count, to + i * to_width);
}

}  // namespace

void run_head_matrices(ThreadPool& pool, KvState::Step& step, const HeadMatrices& m, AdvanceColumns advance) {
  const std::int64_t size = m.keys * m.values, kept = step.first_carried(), count = step.tokens();
  const auto* start = reinterpret_cast<const float*>(step.state().recurrent().value(m.tensor).data());
  std::vector<float*> carried;  // of the tokens from `kept` on: their matrices
  for (std::int64_t t = kept; t < count; ++t)
    carried.push_back(reinterpret_cast<float*>(step.carry(m.tensor, t).data()));
  if (kept == 0) {
    pool.run(m.heads, [&](std::int64_t head) {
      const float* before = start + head * size;
      for (std::int64_t t = 0; t < count; ++t) {
        float* const after = carried[as_size(t)] + head * size;
        advance(t, {head, 0, m.values}, before, after);
        before = after;
      }
    });
  } else {
    const std::int64_t blocks = (m.values + kColumns - 1) / kColumns;
    const auto working = std::make_unique_for_overwrite<float[]>(as_size(m.heads * size));
    pool.run(m.heads * blocks, [&](std::int64_t item) {
      const std::int64_t head = item / blocks, first = item % blocks * kColumns;
      const HeadColumns part{head, first, std::min(kColumns, m.values - first)};
      float* const now = working.get() + head * size + first * m.keys;
      copy_columns(start + head * size + first, m.values, m.keys, part.count, now, part.count);
      for (std::int64_t t = 0; t < count; ++t) {
        advance(t, part, now, now);
        if (t >= kept)
          copy_columns(now, part.count, m.keys, part.count, carried[as_size(t - kept)] + head * size + first,
                       m.values);
      }
    });
  }
  // A number that is not finite makes every sum that it is in not finite either, so sums that are tell of all of them.
  for (std::int64_t t = kept; t < count; ++t) {
    const std::int64_t row = m.heads * m.values;
    if (!scales_finite(DType::f32, reinterpret_cast<const std::byte*>(m.read + t * row), row))
      step.carried(m.tensor, t);
  }
}

}  // namespace kvtide
