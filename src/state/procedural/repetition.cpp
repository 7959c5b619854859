#include "state/procedural/repetition.h"

#include <algorithm>
#include <limits>

#include "state/procedural/block_rows.h"

namespace kvtide {

void Repetition::look(ThreadPool& pool, const Kernels& kernels, int layer, const AttendInput& input,
                      const float* log_mass) {
  const AttendShape& shape = input.shape;
  const std::int64_t count = block_.last - block_.first, group = shape.heads / shape.kv_heads,
                     queries = shape.tokens * group;
  std::vector<float>& shares = layers_[static_cast<std::size_t>(layer)];
  shares.resize(static_cast<std::size_t>(shape.kv_heads * count), -std::numeric_limits<float>::infinity());
  pool.run(shape.kv_heads, [&](std::int64_t head) {
    BlockRows block = padded_block(count, shape.head_dim);
    const std::int64_t dim = block.padded_dim, padded = block.padded_rows;
    for (const Span& span : input.spans[static_cast<std::size_t>(head)]) {
      if (!span.first) continue;  // of what was sealed before
      for (Pos p = std::max(block_.first, *span.first); p < std::min(block_.last, *span.first + span.rows);
           ++p) {
        float* key = block.keys.data() + (p - block_.first) * dim;
        floats_of_row(kernels, span.key_type, span.keys + (p - *span.first) * span.key_stride, shape.head_dim,
                      key);
        if (span.spread) kernels.attend.spread(1, shape.head_dim, shape.head_dim, nullptr, 0, key);
      }
    }
    std::vector<float> turned(static_cast<std::size_t>(dim * padded)),
        q(static_cast<std::size_t>(queries * dim)), scores(static_cast<std::size_t>(queries * padded));
    transpose(block.keys.data(), padded, dim, shape.scale, turned.data());
    // The block's rows lie where they were written: they are met by the queries of the plain view.
    for (std::int64_t i = 0; i < queries; ++i)
      std::copy_n(input.q[0] + (i / group * shape.heads + head * group + i % group) * shape.head_dim,
                  shape.head_dim, q.begin() + i * dim);
    kernels.dense.mix(q.data(), queries, dim, turned.data(), padded, scores.data());
    float* const most = shares.data() + head * count;
    for (std::int64_t i = 0; i < queries; ++i) {
      const float mass = log_mass[i / group * shape.heads + head * group + i % group];
      const float* row = scores.data() + i * padded;
      for (std::int64_t j = 0; j < count; ++j) most[j] = std::max(most[j], row[j] - mass);
    }
  });
}

std::span<const float> Repetition::shares(int layer, int kv_head) const {
  const std::vector<float>& all = layers_[static_cast<std::size_t>(layer)];
  if (all.empty()) return {};
  const auto count = static_cast<std::size_t>(block_.last - block_.first);
  return {all.data() + static_cast<std::size_t>(kv_head) * count, count};
}

}  // namespace kvtide
