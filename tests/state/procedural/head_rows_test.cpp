// The rows that one head of a procedural memory keeps.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kvtide/error.h"
#include "state/procedural/head_rows.h"

namespace kvtide {
namespace {

constexpr std::int64_t kKeyBytes = 34, kValueBytes = 64;
constexpr HeadRows::Kind kEveryKind[] = {HeadRows::Kind::exact, HeadRows::Kind::exact_scored,
                                         HeadRows::Kind::summaries, HeadRows::Kind::summaries_scored};

void fill_row(HeadRows& rows, std::int64_t row, int number) {
  std::memset(rows.key(row), number, kKeyBytes);
  std::memset(rows.value(row), number + 100, kValueBytes);
}
void append_numbered(HeadRows& rows, int number) {
  const auto x = static_cast<float>(number);
  fill_row(rows, rows.append({number * 10, x * 0.5f, x + 1.0f, x * 3.0f}), number);
}
// "3 5 6": the rows in their order, by their numbers; says where key, value and notes disagree.
std::string numbers_of(const HeadRows& rows) {
  std::string text;
  for (std::int64_t row = 0; row < rows.rows(); ++row) {
    const int number = static_cast<int>(rows.key(row)[0]);
    text += (text.empty() ? "" : " ") + std::to_string(number);
    for (std::int64_t i = 0; i < kKeyBytes; ++i)
      if (static_cast<int>(rows.key(row)[i]) != number) text += "(key)";
    for (std::int64_t i = 0; i < kValueBytes; ++i)
      if (static_cast<int>(rows.value(row)[i]) != number + 100) text += "(value)";
    if (rows.note(row).position != number * 10) text += "(position)";
  }
  return text;
}

TEST(HeadRows, HoldWhatWasAppendedInItsOrder) {
  HeadRows rows(HeadRows::Kind::summaries_scored, kKeyBytes, kValueBytes, 1000);
  for (const int number : {4, 7, 1}) append_numbered(rows, number);
  EXPECT_EQ(numbers_of(rows), "4 7 1");
  EXPECT_EQ(rows.note(1).bias, 3.5f);
  EXPECT_EQ(rows.note(1).count, 8.0f);
  EXPECT_EQ(rows.note(1).score, 21.0f);
  ASSERT_NE(rows.bias(), nullptr);
  EXPECT_EQ(rows.bias()[2], 0.5f);
}

TEST(HeadRows, AppendedTogetherAreThoseAppendedOneByOne_AndTellTheirSummaries) {
  HeadRows one_by_one(HeadRows::Kind::summaries, kKeyBytes, kValueBytes, 1000);
  std::vector<RowNote> notes;
  std::vector<std::byte> keys, values;
  for (const int number : {4, 7, 1, 9}) {
    append_numbered(one_by_one, number);
    notes.push_back(one_by_one.note(one_by_one.rows() - 1));
    keys.insert(keys.end(), kKeyBytes, static_cast<std::byte>(number));
    values.insert(values.end(), kValueBytes, static_cast<std::byte>(number + 100));
  }
  HeadRows rows(HeadRows::Kind::summaries, kKeyBytes, kValueBytes, 1000);
  append_numbered(rows, 0);  // stands for itself
  rows.append(notes, keys, values);
  append_numbered(rows, 0);
  EXPECT_EQ(numbers_of(rows), "0 " + numbers_of(one_by_one) + " 0");
  EXPECT_EQ(rows.summaries(0, 6), 4);
  EXPECT_EQ(rows.summaries(2, 4), 3);
  EXPECT_EQ(HeadRows(HeadRows::Kind::exact, kKeyBytes, kValueBytes, 9).summaries(0, 0), 0);
}

TEST(HeadRows, OfExactRowsStandForThemselves) {
  for (const auto kind : {HeadRows::Kind::exact, HeadRows::Kind::exact_scored}) {
    HeadRows rows(kind, kKeyBytes, kValueBytes, 1000);
    append_numbered(rows, 4);
    EXPECT_EQ(rows.bias(), nullptr);
    EXPECT_EQ(rows.note(0).bias, 0.0f);
    EXPECT_EQ(rows.note(0).count, 1.0f);
    EXPECT_EQ(rows.note(0).score, kind == HeadRows::Kind::exact ? 0.0f : 12.0f);
  }
}

TEST(HeadRows, KeepOnlyTheListedRowsAndThoseFromANumberOn) {
  for (const auto kind : kEveryKind) {
    HeadRows rows(kind, kKeyBytes, kValueBytes, 1000);
    for (int number = 0; number < 9; ++number) append_numbered(rows, number);
    rows.keep(std::vector<std::int64_t>{0, 2, 3}, 6);
    EXPECT_EQ(numbers_of(rows), "0 2 3 6 7 8");
    rows.keep(std::vector<std::int64_t>{1}, 6);
    EXPECT_EQ(numbers_of(rows), "2");
    if (rows.bias() != nullptr) {
      EXPECT_EQ(rows.bias()[0], 1.0f);
    }
    append_numbered(rows, 5);
    EXPECT_EQ(numbers_of(rows), "2 5");
    rows.clear();
    EXPECT_EQ(rows.rows(), 0);
    append_numbered(rows, 6);
    EXPECT_EQ(numbers_of(rows), "6");
  }
}

TEST(HeadRows, RowsThatWentReadAsZerosWhenTheirPlaceIsTakenAgain) {
  HeadRows rows(HeadRows::Kind::summaries, kKeyBytes, kValueBytes, 1000);
  for (int number = 1; number < 5; ++number) append_numbered(rows, number);
  rows.keep(std::vector<std::int64_t>{1}, 4);
  const std::int64_t row = rows.append({});
  for (std::int64_t i = 0; i < kKeyBytes; ++i) ASSERT_EQ(rows.key(row)[i], std::byte{0}) << i;
  for (std::int64_t i = 0; i < kValueBytes; ++i) ASSERT_EQ(rows.value(row)[i], std::byte{0}) << i;
}

TEST(HeadRows, AreRefusedBeyondWhatWasReserved) {
  HeadRows rows(HeadRows::Kind::summaries, kKeyBytes, kValueBytes, 3);
  for (int number = 0; number < 3; ++number) append_numbered(rows, number);
  try {
    rows.append({});
    ADD_FAILURE() << "a fourth row was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  }
  EXPECT_EQ(numbers_of(rows), "0 1 2");
}

TEST(HeadRows, ACloneIsIndependent) {
  HeadRows rows(HeadRows::Kind::summaries, kKeyBytes, kValueBytes, 1000);
  for (int number = 0; number < 4; ++number) append_numbered(rows, number);
  const auto clone = rows.clone();
  rows.keep(std::vector<std::int64_t>{3}, 4);
  append_numbered(*clone, 9);
  EXPECT_EQ(numbers_of(rows), "3");
  EXPECT_EQ(numbers_of(*clone), "0 1 2 3 9");
}

TEST(HeadRows, NeverHoldMoreThanTheirNumberOfRowsMay_ClonesIncluded) {
  for (const auto kind : kEveryKind) {
    auto rows = std::make_unique<HeadRows>(kind, kKeyBytes, kValueBytes, 4000);
    std::int64_t most = 0;
    const auto within = [&] {
      most = std::max(most, rows->rows());
      return rows->held_bytes() <= HeadRows::bytes_for(kind, kKeyBytes, kValueBytes, most);
    };
    for (int step = 0; step < 60; ++step) {
      for (int i = 0; i < 37; ++i) append_numbered(*rows, i);
      ASSERT_TRUE(within()) << "step " << step << " with " << rows->rows() << " rows";
      if (step % 7 == 6) {
        std::vector<std::int64_t> kept;
        for (std::int64_t row = 0; row < rows->rows() / 2; row += 2) kept.push_back(row);
        rows->keep(kept, rows->rows() / 2);
        ASSERT_TRUE(within());
      }
      if (step % 5 == 4) rows = rows->clone();
      ASSERT_TRUE(within()) << "the clone of step " << step << " with " << rows->rows() << " rows";
    }
    // Pages in full: 1,000 rows of 34 and 64 bytes take 9 and 16 pages.
    HeadRows exact(kind, kKeyBytes, kValueBytes, 4000);
    for (int i = 0; i < 1000; ++i) append_numbered(exact, i % 50);
    const std::int64_t notes = kind == HeadRows::Kind::exact          ? 4
                               : kind == HeadRows::Kind::exact_scored ? 8
                               : kind == HeadRows::Kind::summaries    ? 12
                                                                      : 16;
    EXPECT_EQ(exact.held_bytes(), 25 * 4096 + 1024 * notes);
    exact.clear();
    EXPECT_LE(exact.held_bytes(), 1024 * notes) << "pages of rows that went are given back";
  }
}

}  // namespace
}  // namespace kvtide
