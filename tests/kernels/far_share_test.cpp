#include "kernels/far_share.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernels.h"
#include "tests/kernels/attend_case.h"
#include "tests/kernels/same_bits.h"

namespace kvtide {
namespace {

using testing::AttendCase;
using testing::AttendOptions;
using testing::make_case;
using testing::same_bits;

std::vector<float> shares_of(const AttendCase& c, const testing::SpanLists& spans, std::int64_t token,
                             int kv_head, std::int64_t near,
                             const AttendRow& kernels = best_kernels().attend) {
  const std::vector<ViewPoint> views = view_points(spans);
  std::vector<const float*> q(views.size(), c.q.data());
  return far_shares(kernels, {c.shape, views, q, spans}, token, kv_head, near);
}

// By the definition, in double. Rows below `sinks` are near, whatever the window.
double direct_share(const AttendCase& c, std::int64_t token, int head, std::int64_t near, Pos sinks = 0) {
  const AttendShape& s = c.shape;
  const auto dim = static_cast<std::size_t>(s.head_dim);
  const auto& kv = c.heads[static_cast<std::size_t>(head / (s.heads / s.kv_heads))];
  const std::size_t at = static_cast<std::size_t>(token * s.heads + head) * dim;
  const auto weight = [&](const testing::Rows& keys, std::size_t row, double mass) {
    double sum = 0.0;
    for (std::size_t d = 0; d < dim; ++d)
      sum += static_cast<double>(c.q[at + d]) * static_cast<double>(keys.numbers[row * dim + d]);
    return std::exp(sum * static_cast<double>(s.scale) + mass);
  };
  double close = 0.0, far = 0.0;
  for (std::size_t i = 0; i < kv.log_mass.size(); ++i)
    close += weight(kv.compact_keys, i, static_cast<double>(kv.log_mass[i]));
  const Pos reader = s.first + token;
  for (Pos p = 0; p <= reader; ++p) {
    if (p >= sinks && s.window && p <= reader - *s.window) continue;
    (p >= sinks && reader - p >= near ? far : close) += weight(kv.keys, static_cast<std::size_t>(p), 0.0);
  }
  return far / (close + far);
}

TEST(FarShares, AreTheMassOfTheRowsThatStandFarAway) {
  for (const auto& [first, window, compact, near] :
       std::vector<std::tuple<Pos, std::optional<std::int64_t>, std::int64_t, std::int64_t>>{
           {0, std::nullopt, 0, 1},
           {300, std::nullopt, 0, 100},
           {300, 128, 0, 64},
           {300, 129, 5, 65},
           {63, 10, 3, 5},
           {200, 64, 0, 64}}) {
    const AttendCase c = make_case({.first = first,
                                    .tokens = 3,
                                    .heads = 6,
                                    .kv_heads = 2,
                                    .head_dim = 24,
                                    .window = window,
                                    .compact = compact,
                                    .key_type = DType::f16,
                                    .value_type = DType::f16});
    for (std::int64_t token = 0; token < 3; ++token)
      for (int kv_head = 0; kv_head < 2; ++kv_head) {
        const auto got = shares_of(c, testing::full_spans(c), token, kv_head, near);
        ASSERT_EQ(got.size(), 3u);
        for (int i = 0; i < 3; ++i)
          EXPECT_NEAR(static_cast<double>(got[static_cast<std::size_t>(i)]),
                      direct_share(c, token, kv_head * 3 + i, near), 1e-5)
              << "first " << first << ", near " << near << ", token " << token << ", head "
              << kv_head * 3 + i;
      }
  }
}

TEST(FarShares, CountSinksAsNear) {
  const AttendCase c = make_case({.first = 200, .window = 50});
  testing::SpanLists spans(1);
  for (const auto& [first, last] : {std::pair<Pos, Pos>{0, 4}, {140, 201}}) {
    spans[0].push_back(testing::span_of(c.heads[0].keys, c.heads[0].values, first, last - first));
    spans[0].back().first = first;
    spans[0].back().sink = first == 0;
  }
  const auto got = shares_of(c, spans, 0, 0, 25);
  for (int head = 0; head < 2; ++head)
    EXPECT_NEAR(static_cast<double>(got[static_cast<std::size_t>(head)]), direct_share(c, 0, head, 25, 4),
                1e-5);
}

TEST(FarShares, AreTheSameBitsForEveryKernelTableAndWhereverRowsLie) {
  const AttendCase c =
      make_case({.first = 500, .tokens = 1, .heads = 4, .kv_heads = 1, .head_dim = 64, .window = 400});
  const auto wanted = shares_of(c, testing::full_spans(c), 0, 0, 200, kAttendScalar);
  EXPECT_GT(wanted[0], 0.0f);
  for (const Kernels* kernels : available_kernels())
    EXPECT_TRUE(same_bits(shares_of(c, testing::full_spans(c), 0, 0, 200, kernels->attend), wanted))
        << kernels->isa;
  EXPECT_TRUE(same_bits(shares_of(c, testing::full_spans(c, 64, {128, 320}), 0, 0, 200), wanted));
}

}  // namespace
}  // namespace kvtide
