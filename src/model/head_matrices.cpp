#include "model/head_matrices.h"

#include <span>
#include <vector>

#include "base/as_size.h"

namespace kvtide {

void run_head_matrices(ThreadPool& pool, KvState::Step& step, const HeadMatrices& matrices,
                       AdvanceHead advance) {
  const std::int64_t all = matrices.size * matrices.heads;
  // Tokens from `kept` on leave their matrices in memory of their own.
  const std::int64_t kept = step.first_carried(), count = step.tokens();
  std::vector<float> working(as_size(kept > 0 ? all : 0));
  std::vector<std::vector<float>> carried(as_size(count - kept), std::vector<float>(as_size(all)));
  const auto* start = reinterpret_cast<const float*>(step.state().recurrent().value(matrices.tensor).data());
  pool.run(matrices.heads, [&](std::int64_t head) {
    const float* before = start + head * matrices.size;
    for (std::int64_t t = 0; t < count; ++t) {
      float* after = (t < kept ? working.data() : carried[as_size(t - kept)].data()) + head * matrices.size;
      advance(t, head, before, after);
      before = after;
    }
  });
  for (std::int64_t t = kept; t < count; ++t)
    step.carry(matrices.tensor, t, std::as_bytes(std::span(carried[as_size(t - kept)])));
}

}  // namespace kvtide
