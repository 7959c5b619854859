#include "state/arrange.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvtide {
namespace {

// The model that arrange() is compared with: an array that remembers which position was written into each row
// last.
class Storage {
 public:
  explicit Storage(std::int64_t rows) : written_(static_cast<std::size_t>(rows), -1) {}
  void write(Pos pos) { written_[static_cast<std::size_t>(pos % static_cast<Pos>(written_.size()))] = pos; }
  Pos at(std::int64_t row) const { return written_.at(static_cast<std::size_t>(row)); }

 private:
  std::vector<Pos> written_;
};

// The runs list exactly the positions [first, end), in order, each in a row that holds it.
::testing::AssertionResult covers(const std::vector<RowRun>& runs, Pos first, Pos end,
                                  const Storage& storage) {
  Pos next = first;
  for (const RowRun& run : runs) {
    if (run.rows < 1) return ::testing::AssertionFailure() << "an empty run";
    if (run.first != next)
      return ::testing::AssertionFailure() << "position " << run.first << " instead of " << next;
    for (std::int64_t i = 0; i < run.rows; ++i)
      if (storage.at(run.row + i) != run.first + i)
        return ::testing::AssertionFailure() << "row " << run.row + i << " holds " << storage.at(run.row + i)
                                             << " instead of " << run.first + i;
    next += run.rows;
  }
  if (next != end) return ::testing::AssertionFailure() << "ends at " << next << " instead of " << end;
  return ::testing::AssertionSuccess();
}

TEST(Arrange, ListsEveryVisiblePositionOfASmallRing_ForEveryStepAndWindow) {
  for (std::int64_t window = 1; window <= 5; ++window)
    for (std::int64_t step = 1; step <= 4; ++step)
      for (std::int64_t ring = window + step; ring <= window + step + 3; ++ring) {
        Storage storage(ring);
        for (Pos begin = 0; begin < 4 * ring; begin += step) {
          for (Pos p = begin; p < begin + step; ++p) {
            ASSERT_EQ(row_of(p, ring), p % ring);
            storage.write(p);
          }
          const auto runs = arrange(begin + step, begin, window, ring);
          ASSERT_LE(runs.size(), 2u);
          ASSERT_TRUE(covers(runs, std::max<Pos>(0, begin - window + 1), begin + step, storage))
              << "window " << window << " step " << step << " ring " << ring << " at " << begin;
        }
      }
}

TEST(Arrange, KeepsEveryVisiblePositionWhenStepsAreWrittenAndDropped) {
  for (const std::int64_t window : {1, 2, 63, 64, 65, 100})
    for (const std::int64_t most : {1, 3, 63, 64, 65}) {
      const std::int64_t ring = ring_rows(window, most);
      Storage storage(ring);
      Pos position = 0;
      for (int turn = 0; position < 3 * ring; ++turn) {
        for (Pos p = position; p < position + most; ++p)
          storage.write(p);  // a step of the largest size, dropped
        const std::int64_t step = 1 + turn % most;
        for (Pos p = position; p < position + step; ++p) storage.write(p);
        ASSERT_TRUE(covers(arrange(position + step, position, window, ring),
                           std::max<Pos>(0, position - window + 1), position + step, storage))
            << "window " << window << " largest step " << most << " at " << position;
        position += step;
      }
    }
}

TEST(Arrange, LetsNoTileOfSixtyFourPositionsWrapAround) {
  for (const std::int64_t window : {1, 31, 64, 65, 500, 512})
    for (const std::int64_t step : {1, 7, 64, 512}) {
      const std::int64_t ring = ring_rows(window, step);
      EXPECT_EQ(ring % 64, 0);
      EXPECT_GE(ring, window + step - 1) << "the visible rows of a step do not fit";
      for (Pos begin = 0; begin < 3 * ring; begin += step) {
        const auto runs = arrange(begin + step, begin, window, ring);
        if (runs.size() == 2) {
          ASSERT_EQ(runs[1].first % 64, 0) << "window " << window << " step " << step << " at " << begin;
        }
        // A position's place in its tile is also its row's place in the ring's tile.
        for (const RowRun& run : runs) {
          ASSERT_EQ(run.row % 64, run.first % 64);
        }
      }
    }
}

TEST(Arrange, WithoutARingGivesOneRunWhereRowsAreThePositions) {
  EXPECT_EQ(arrange(10, 7, std::nullopt, std::nullopt), (std::vector<RowRun>{{0, 0, 10}}));
  EXPECT_EQ(arrange(10, 7, 3, std::nullopt), (std::vector<RowRun>{{5, 5, 5}}));
  EXPECT_EQ(arrange(10, 7, 8, std::nullopt), (std::vector<RowRun>{{0, 0, 10}}));
  EXPECT_EQ(arrange(10, 7, 1000, std::nullopt), (std::vector<RowRun>{{0, 0, 10}}));
  EXPECT_EQ(row_of(12345, std::nullopt), 12345);
}

TEST(Arrange, OfNothingIsEmpty) {
  EXPECT_TRUE(arrange(0, 0, std::nullopt, std::nullopt).empty());
  EXPECT_TRUE(arrange(0, 0, 4, 64).empty());
  EXPECT_TRUE(arrange(10, 20, 5, 64).empty()) << "a reader so far ahead that its window has left all rows";
}

TEST(Arrange, CountsTheRowsThatWereWritten) {
  EXPECT_EQ(rows_used(0, std::nullopt), 0);
  EXPECT_EQ(rows_used(1000, std::nullopt), 1000);
  EXPECT_EQ(rows_used(0, 128), 0);
  EXPECT_EQ(rows_used(127, 128), 127);
  EXPECT_EQ(rows_used(128, 128), 128);
  EXPECT_EQ(rows_used(100000, 128), 128);
}

}  // namespace
}  // namespace kvtide
