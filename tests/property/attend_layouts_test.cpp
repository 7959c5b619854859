// Random attention problems: near the softmax in double, and the same bits for every chunk, thread count,
// table and cut between tiles.
#include <gtest/gtest.h>

#include "kernels/kernels.h"
#include "tests/kernels/attend_case.h"
#include "tests/kernels/same_bits.h"

namespace kvtide {
namespace {

using testing::AttendCase;
using testing::AttendOptions;
using testing::Rng;

AttendOptions random_options(Rng& rng, std::uint64_t seed) {
  constexpr int kDims[] = {3, 8, 16, 24, 33, 64, 80, 128};
  AttendOptions o;
  o.kv_heads = static_cast<int>(1 + rng.below(3));
  o.heads = o.kv_heads * static_cast<int>(1 + rng.below(5));
  o.head_dim = kDims[rng.below(8)];
  o.first = rng.below(4) == 0 ? rng.below(2200) : rng.below(200);
  o.tokens = 1 + rng.below(90);
  if (rng.below(2) == 0) o.window = 1 + rng.below(300);
  if (rng.below(3) == 0) o.compact = 1 + rng.below(150);
  o.key_type = rng.below(2) == 0 ? DType::f16 : DType::f32;
  o.value_type = rng.below(2) == 0 ? DType::f16 : DType::f32;
  o.seed = seed;
  return o;
}

TEST(AttendLayouts, AreAllOneArithmetic) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Rng rng(seed);
    const AttendOptions o = random_options(rng, seed);
    const AttendCase c = testing::make_case(o);
    const Pos end = o.first + o.tokens;
    const auto wanted = testing::run_attend(c, best_kernels().attend, 1, testing::full_spans(c));
    const auto direct = testing::direct_attention(c);
    for (std::size_t i = 0; i < wanted.size(); ++i)
      ASSERT_NEAR(wanted[i], direct[i], 2e-5) << "seed " << seed;

    std::vector<Pos> cuts;
    for (int i = 0; i < 3; ++i) cuts.push_back(64 * rng.below(end / 64 + 1));
    std::sort(cuts.begin(), cuts.end());
    const Pos oldest = o.window ? std::max<Pos>(0, o.first - *o.window + 1) : 0;
    const auto spans = testing::full_spans(c, rng.below(oldest + 1), cuts);
    const auto tables = available_kernels();
    const AttendRow& kernels =
        tables[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(tables.size())))]->attend;
    const auto threads = static_cast<int>(1 + rng.below(8));
    ASSERT_TRUE(testing::same_bits(testing::run_attend(c, kernels, threads, spans), wanted))
        << "seed " << seed << " " << kernels.isa << " threads " << threads;

    const std::int64_t from = rng.below(o.tokens), count = 1 + rng.below(o.tokens - from);
    AttendCase part = c;
    part.shape.first += from;
    part.shape.tokens = count;
    const auto width = static_cast<std::size_t>(o.heads * o.head_dim),
               skip = static_cast<std::size_t>(from) * width;
    part.q.assign(c.q.begin() + static_cast<std::ptrdiff_t>(skip),
                  c.q.begin() + static_cast<std::ptrdiff_t>(skip + static_cast<std::size_t>(count) * width));
    ASSERT_TRUE(testing::same_bits(testing::run_attend(part, kernels, threads, spans),
                                   std::span(wanted).subspan(skip, part.q.size())))
        << "seed " << seed << " tokens [" << from << ", " << from + count << ")";
  }
}

}  // namespace
}  // namespace kvtide
