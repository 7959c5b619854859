// Rows that lie as their Hadamard transforms: seen as if they were not, turned or not, beside others.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/attend.h"
#include "kernels/hadamard.h"
#include "kernels/kernels.h"
#include "tests/kernels/attend_case.h"
#include "tests/kernels/same_bits.h"

namespace kvtide {
namespace {

using testing::AttendCase;
using testing::make_case;
using testing::Rows;
using testing::run_attend;
using testing::same_bits;
using testing::SpanLists;

// By the definition: element i is the sum of x_j with the sign of the number of common bits of i and j.
std::vector<float> by_definition(const std::vector<float>& rows, int dim) {
  const int part = dim & -dim;
  std::vector<float> out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t begin = i / static_cast<std::size_t>(part) * static_cast<std::size_t>(part);
    double sum = 0.0;
    for (int j = 0; j < part; ++j) {
      const bool odd = std::popcount((i - begin) & static_cast<std::size_t>(j)) % 2 == 1;
      sum += static_cast<double>(rows[begin + static_cast<std::size_t>(j)]) * (odd ? -1.0 : 1.0);
    }
    out.push_back(static_cast<float>(sum / std::sqrt(part)));
  }
  return out;
}

// The same by butterflies, in double: by the definition the rows of the cases below would take most of the suite's time.
std::vector<float> transformed(const std::vector<float>& rows, int dim) {
  const auto part = static_cast<std::size_t>(dim & -dim);
  std::vector<double> x(rows.begin(), rows.end());
  for (std::size_t begin = 0; begin < x.size(); begin += part)
    for (std::size_t step = 1; step < part; step *= 2)
      for (std::size_t i = begin; i < begin + part; ++i)
        if (((i - begin) & step) == 0) {
          const double a = x[i], b = x[i + step];
          x[i] = a + b;
          x[i + step] = a - b;
        }
  std::vector<float> out;
  for (const double sum : x) out.push_back(static_cast<float>(sum / std::sqrt(part)));
  return out;
}

TEST(Hadamard, IsItsDefinitionAndItsOwnInverse) {
  for (const int dim : {2, 32, 64, 96, 256, 480, 512}) {
    const std::vector<float> x = testing::normals(static_cast<std::size_t>(dim), 3);
    std::vector<float> y = x;
    hadamard(y.data(), dim);
    const std::vector<float> wanted = by_definition(x, dim), quick = transformed(x, dim);
    for (std::size_t i = 0; i < y.size(); ++i) {
      ASSERT_NEAR(y[i], wanted[i], 2e-6) << dim << " " << i;
      ASSERT_NEAR(quick[i], wanted[i], 1e-6) << dim << " " << i;
    }
    hadamard(y.data(), dim);
    for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], x[i], 2e-6) << dim << " " << i;
  }
}

TEST(Hadamard, IsWhatEveryTableDoesToRows_BitForBit) {
  for (const int dim : {32, 64, 96, 128, 256, 480, 512}) {
    const std::vector<float> rows = testing::normals(static_cast<std::size_t>(3 * dim), 4);
    std::vector<float> wanted = rows;
    for (int i = 0; i < 3; ++i) hadamard(wanted.data() + i * dim, dim);
    for (const Kernels* kernels : available_kernels()) {
      std::vector<float> got = rows;
      kernels->attend.spread(3, dim, dim, nullptr, 0, got.data());
      EXPECT_TRUE(testing::same_bits(got, wanted)) << kernels->isa << " " << dim;
    }
  }
}

// The compact rows of a case as they lie transformed, and what they then stand for, put back into the case.
struct Spread {
  AttendCase c;
  std::vector<Rows> keys, values;
  std::vector<float> rotation;  // [2][pairs]
  std::vector<float> mean_key;  // transformed; empty: keys lie as they are

  Spread(const testing::AttendOptions& o, bool turned) : c(make_case(o)) {
    const int dim = c.shape.head_dim, pairs = dim / 2;
    for (testing::Head& head : c.heads) {
      keys.emplace_back(o.key_type, dim, transformed(head.compact_keys.numbers, dim));
      values.emplace_back(o.value_type, dim, transformed(head.compact_values.numbers, dim));
      // Keys in four bits are kept less a mean, as memories do.
      if (o.key_type == DType::q4_0 && mean_key.empty())
        mean_key = testing::normals(static_cast<std::size_t>(dim), 5);
      std::vector<float> whole = keys.back().numbers;
      for (std::size_t i = 0; i < whole.size() && !mean_key.empty(); ++i)
        whole[i] += mean_key[i % static_cast<std::size_t>(dim)];
      head.compact_keys.numbers = transformed(whole, dim);
      head.compact_values.numbers = transformed(values.back().numbers, dim);
    }
    if (!turned) return;
    for (int i = 0; i < 2 * pairs; ++i)
      rotation.push_back(
          static_cast<float>(i < pairs ? std::cos(0.3 * i + 0.1) : std::sin(0.3 * (i - pairs) + 0.1)));
    for (testing::Head& head : c.heads)
      for (std::size_t row = 0; row < head.compact_keys.numbers.size(); row += static_cast<std::size_t>(dim))
        for (int i = 0; i < pairs; ++i) {
          float& a = head.compact_keys.numbers[row + static_cast<std::size_t>(i)];
          float& b = head.compact_keys.numbers[row + static_cast<std::size_t>(pairs + i)];
          const double angle = 0.3 * i + 0.1, x = static_cast<double>(a), y = static_cast<double>(b);
          a = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
          b = static_cast<float>(y * std::cos(angle) + x * std::sin(angle));
        }
  }

  // All compact rows in two spans, the second behind `cut` rows, then the positions as they are.
  SpanLists spans(std::int64_t cut) const {
    SpanLists lists = testing::full_spans(c);
    for (std::size_t h = 0; h < lists.size(); ++h) {
      const auto rows = static_cast<std::int64_t>(c.heads[h].log_mass.size());
      std::vector<Span> list;
      for (const auto& [first, last] : {std::pair{std::int64_t{0}, cut}, std::pair{cut, rows}}) {
        if (first == last) continue;
        Span span = testing::span_of(keys[h], values[h], first, last - first);
        span.spread = true;
        if (!mean_key.empty()) span.mean_key = mean_key.data();
        span.log_mass = c.heads[h].log_mass.data() + first;
        if (!rotation.empty()) span.rotation = rotation.data();
        if (!rotation.empty()) span.rotation_pairs = c.shape.head_dim / 2;
        list.push_back(span);
      }
      list.insert(list.end(), lists[h].begin() + 1, lists[h].end());
      lists[h] = list;
    }
    return lists;
  }
};

std::vector<Spread> spread_cases() {
  std::vector<Spread> all;
  for (const DType type : {DType::f32, DType::q8_0, DType::q4_0})
    for (const int dim : {32, 64, 96, 256, 512})
      for (const bool turned : {false, true})
        all.push_back(Spread({.first = 90,
                              .tokens = dim == 32 || dim == 96 ? 40 : 16,  // long rows and many rows are dear
                              .heads = 6,
                              .kv_heads = 2,
                              .head_dim = dim,
                              .compact = dim == 64 ? 2100 : 150,
                              .key_type = type,
                              .value_type = type},
                             turned));
  return all;
}

TEST(AttendSpread, EqualsTheSoftmaxInDoubleOfTheRowsAsTheyWere) {
  for (const Spread& spread : spread_cases()) {
    const auto wanted = testing::direct_attention(spread.c);
    for (const Kernels* kernels : available_kernels())
      for (const std::int64_t cut : {0, 64, 100}) {
        const auto got = run_attend(spread.c, kernels->attend, 2, spread.spans(cut));
        for (std::size_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], wanted[i], 3e-5)
              << kernels->isa << " dim " << spread.c.shape.head_dim << " cut " << cut << " element " << i;
      }
  }
}

TEST(AttendSpread, IsTheSameBitsForEveryTableAndThreadCount) {
  for (const Spread& spread : spread_cases()) {
    const auto wanted = run_attend(spread.c, kAttendScalar, 1, spread.spans(0));
    for (const Kernels* kernels : available_kernels())
      for (const int threads : {1, 2, 5})
        EXPECT_TRUE(same_bits(run_attend(spread.c, kernels->attend, threads, spread.spans(64)), wanted))
            << kernels->isa << " " << threads;
  }
}

TEST(AttendSpread, IsTheSameBitsForEveryChunk) {
  for (const Spread& spread : spread_cases()) {
    const auto wanted = run_attend(spread.c, kAttendScalar, 1, spread.spans(0));
    std::vector<float> got;
    const std::int64_t tokens = spread.c.shape.tokens;
    for (std::int64_t from = 0; from < tokens; from += 7) {
      Spread part = spread;
      part.c = testing::part_of(spread.c, from, std::min<std::int64_t>(7, tokens - from));
      const auto rows = run_attend(part.c, best_kernels().attend, 1, part.spans(0));
      got.insert(got.end(), rows.begin(), rows.end());
    }
    EXPECT_TRUE(same_bits(got, wanted)) << spread.c.shape.head_dim;
  }
}

}  // namespace
}  // namespace kvtide
