// Masks for exported models: every small one against the words of the definition, element by element.
#include "kvtide/masks.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/half.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

// A query sees itself and what came before: the newest A in all, and the first positions that always stay.
bool should_see(Pos query, Pos row, std::optional<std::int64_t> size, std::int64_t sinks) {
  if (row > query) return false;
  if (row < sinks) return true;
  const std::int64_t newer_or_equal = query - row + 1;  // rows from this one to the query's own
  return !size || newer_or_equal <= *size;
}

std::vector<std::optional<std::int64_t>> sizes_up_to(std::int64_t most) {
  std::vector<std::optional<std::int64_t>> sizes{std::nullopt};
  for (std::int64_t size = 1; size <= most; ++size) sizes.emplace_back(size);
  return sizes;
}

TEST(Masks, EverySmallAttentionMaskAndWriteMaskIsWhatTheDefinitionSays) {
  int masks = 0;
  for (std::int64_t rows = 1; rows <= 9; ++rows)
    for (std::int64_t tokens = 1; tokens <= 5; ++tokens)
      for (std::int64_t real = 0; real <= tokens; ++real)
        for (Pos first = 0; first + real <= rows; ++first) {
          ChunkMask chunk{first, tokens, rows, real, std::nullopt, 0};
          const auto written = write_mask(chunk);
          ASSERT_EQ(written.size(), static_cast<std::size_t>(rows * tokens));
          for (std::int64_t s = 0; s < rows; ++s)
            for (std::int64_t t = 0; t < tokens; ++t)
              ASSERT_EQ(written[static_cast<std::size_t>(s * tokens + t)],
                        t < real && s == first + t ? 1.0f : 0.0f);
          for (const auto& size : sizes_up_to(rows + 1))
            for (std::int64_t sinks = 0; sinks <= 3; ++sinks) {
              chunk.attention_size = size;
              chunk.sinks = sinks;
              const auto mask = attention_mask(chunk);
              ASSERT_EQ(mask.size(), static_cast<std::size_t>(rows * tokens));
              ++masks;
              for (std::int64_t t = 0; t < tokens; ++t)
                for (std::int64_t s = 0; s < rows; ++s)
                  ASSERT_EQ(mask[static_cast<std::size_t>(t * rows + s)],
                            t < real && should_see(first + t, s, size, sinks) ? 0.0f : -1e4f)
                      << "rows " << rows << ", first " << first << ", token " << t << ", row " << s;
            }
        }
  EXPECT_GT(masks, 10000);
}

TEST(Masks, EverySmallAttentionSizeMaskHasExactlyThatManyKeysARow) {
  for (std::int64_t length = 1; length <= 12; ++length)
    for (std::int64_t size = 1; size <= length + 2; ++size)
      for (Pos position = 0; position <= length; ++position) {
        const auto mask = attention_size_mask(length, size, position);
        ASSERT_EQ(mask.size(), static_cast<std::size_t>(length * length));
        for (Pos query = 0; query < length; ++query) {
          std::int64_t visible = 0;
          for (Pos row = 0; row < length; ++row) {
            const float value = mask[static_cast<std::size_t>(query * length + row)];
            const bool shown = query <= position && should_see(query, row, size, 0);
            ASSERT_EQ(value, shown ? 0.0f : -std::numeric_limits<float>::infinity());
            visible += shown ? 1 : 0;
          }
          ASSERT_EQ(visible, query > position ? 0 : std::min(size, query + 1));
        }
      }
}

TEST(Masks, TheRuleIsOneForEveryDistance) {
  for (Pos query = 0; query < 20; ++query)
    for (Pos row = 0; row < 22; ++row)
      for (const auto& size : sizes_up_to(21))
        for (const std::int64_t sinks : {0, 1, 4})
          ASSERT_EQ(sees(query, row, size, sinks), should_see(query, row, size, sinks));
}

TEST(Masks, AHiddenRowStaysANumberInF16) {
  EXPECT_EQ(f16_to_f32(f32_to_f16(kHidden)), -10000.0f);
  EXPECT_EQ(attention_mask({0, 1, 2, {}, {}, 0}, -7.5f), (std::vector<float>{0.0f, -7.5f}));
}

TEST(Masks, WhatMakesNoSenseIsRefused) {
  const auto refused = [](const ChunkMask& chunk, float hidden = kHidden) {
    EXPECT_THROW(attention_mask(chunk, hidden), Error)
        << chunk.first << " " << chunk.tokens << " " << chunk.rows;
  };
  refused({-1, 1, 4, {}, {}, 0});
  refused({0, 0, 4, {}, {}, 0});
  refused({0, 1, 0, {}, {}, 0});
  refused({0, 1, 4, {}, {}, -1});
  refused({0, 1, 4, {}, 0, 0});
  refused({0, 2, 4, 3, {}, 0});
  refused({0, 2, 4, -1, {}, 0});
  refused({3, 2, 4, {}, {}, 0});
  refused({5, 2, 4, 0, {}, 0});
  refused({0, std::int64_t{1} << 40, std::int64_t{1} << 40, 0, {}, 0});
  refused({0, 1, 4, {}, {}, 0}, 0.0f);
  refused({0, 1, 4, {}, {}, 0}, -std::numeric_limits<float>::infinity());
  refused({0, 1, 4, {}, {}, 0}, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THROW(write_mask({3, 2, 4, {}, {}, 0}), Error);
  EXPECT_THROW(attention_size_mask(0, 1, 0), Error);
  EXPECT_THROW(attention_size_mask(4, 0, 0), Error);
  EXPECT_THROW(attention_size_mask(4, 1, 5), Error);
  EXPECT_THROW(attention_size_mask(4, 1, -1), Error);
}

}  // namespace
}  // namespace kvtide
