// The past of a procedural state, row by row: pins, losses that add up, the spill file, drift in numbers.
#include <gtest/gtest.h>

#include "kernels/codec.h"
#include "state/procedural/budget.h"
#include "state/procedural/drift_meter.h"
#include "state/procedural/spill.h"
#include "tests/formats/temporary_folder.h"
#include "tests/model/expect_refused.h"
#include "tests/state/filled_state.h"

namespace kvtide {
namespace {

using testing::expect_refused;

constexpr int kHeadDim = 32;

// Two layers of two KV heads; of blocks of 16 plain heads keep `rows`.
KvSpec procedural(std::int64_t rows, bool full = false) {
  KvSpec spec;
  spec.layers.assign(2, {2, kHeadDim, std::nullopt});
  spec.key_type = spec.value_type = DType::f32;
  spec.capacity = 4000;
  spec.max_step = 16;
  ProceduralSpec p;
  p.sinks = 2;
  p.window = 32;
  p.block = 16;
  p.summaries = 2;
  p.levels = 2;
  p.query_heads = 2;
  p.scale = 0.01f;
  p.plans.assign(2, std::vector<HeadPlan>(2, HeadPlan{.full = full, .rows = rows}));
  p.frequencies.assign(2, {1.0, 0.1});
  spec.procedural = p;
  return spec;
}

class Reader {
 public:
  explicit Reader(const KvSpec& spec) : state(spec) {}
  void read(std::int64_t tokens) {
    for (const Pos end = state.position() + tokens; state.position() < end;) {
      KvState::Step step =
          state.begin(std::min({std::int64_t{16}, state.step_room(), end - state.position()}));
      testing::fill(step, state.spec());
      const std::vector<float> query(kHeadDim, 0.5f), mass(2, 3.0f);
      for (int layer = 0; layer < 2; ++layer)
        for (std::int64_t t = 0; t < step.tokens(); ++t) {
          if (!step.observes(layer, t)) continue;
          for (int head = 0; head < 2; ++head)
            step.observe_query(best_kernels(), layer, t, head, query.data());
          step.observe_log_mass(layer, t, mass.data());
        }
      step.commit();
      state.seal_if_due(pool, best_kernels(), {});
      state.past()->audit();  // throws when rows and losses do not add up
    }
  }
  // How often a head shows the key and the value of a position, outside sinks and window.
  int shown(int layer, int head, Pos position) {
    KvState::Step step = state.begin(1);
    const auto key = testing::row_numbers(position, layer, head, true, kHeadDim);
    const auto value = testing::row_numbers(position, layer, head, false, kHeadDim);
    int found = 0;
    const auto spans = step.spans(layer);
    for (const Span& span : spans[static_cast<std::size_t>(head)])
      for (std::int64_t i = 0; !span.first && i < span.rows; ++i)
        found += testing::compare_row(span.key_type, span.keys + i * span.key_stride, key).empty() &&
                 testing::compare_row(span.value_type, span.values + i * span.value_stride, value).empty();
    return found;
  }

  ThreadPool pool{1};
  KvState state;
};

TEST(ProceduralMemory, PinnedRowsAreThereWithTheirKeysAndValues_AfterAnyNumberOfMerges) {
  KvSpec spec = procedural(4);
  spec.procedural->pins = {{20, 25}};
  Reader reader(spec);
  reader.read(1000);
  EXPECT_GT(reader.state.past()->counts().consolidations, 15);
  for (int layer = 0; layer < 2; ++layer)
    for (int head = 0; head < 2; ++head)
      for (Pos p = 20; p < 25; ++p) EXPECT_EQ(reader.shown(layer, head, p), 1) << p;
  EXPECT_EQ(reader.state.past()->counts().pinned_rows, 5 * 4);
}

TEST(ProceduralMemory, FullHeadsThinOutAroundThePinnedRows) {
  KvSpec spec = procedural(4, true);
  spec.procedural->full_rows = 64;
  spec.procedural->pins = {{20, 25}};
  Reader reader(spec);
  reader.read(1000);
  for (Pos p = 20; p < 25; ++p) EXPECT_EQ(reader.shown(1, 1, p), 1) << p;
  EXPECT_EQ(reader.shown(1, 1, 19) + reader.shown(1, 1, 25), 0) << "what is not pinned goes";
  EXPECT_LE(reader.state.past()->counts().full_rows, 4 * (64 + 5));
}

TEST(ProceduralMemory, ABlockThatIsPinnedAsAWholeStaysAsItIs) {
  KvSpec spec = procedural(4);
  spec.procedural->pins = {{16, 48}};
  Reader reader(spec);
  reader.read(300);
  for (Pos p = 16; p < 48; ++p) EXPECT_EQ(reader.shown(0, 0, p), 1) << p;
}

TEST(ProceduralMemory, Pin_RefusesWhatIsSummarised_ButTakesSinksAndWhatIsPinned) {
  KvSpec spec = procedural(4);
  spec.procedural->pins = {{4, 8}};
  Reader reader(spec);
  reader.read(48);
  expect_refused(ErrorCode::invalid_argument, "summarised already, up to position 16", [&] {
    reader.state.pin({8, 9});
  });
  expect_refused(ErrorCode::invalid_argument, "nothing between", [&] { reader.state.pin({9, 9}); });
  EXPECT_NO_THROW(reader.state.pin({0, 2}));
  EXPECT_NO_THROW(reader.state.pin({5, 8}));
  reader.state.pin({16, 18});
  EXPECT_EQ(reader.state.spec().procedural->pins, (std::vector<PosRange>{{0, 2}, {4, 8}, {16, 18}}));
}

TEST(ProceduralMemory, WithoutSummaries_WhatDoesNotStayIsCountedAsLost) {
  KvSpec spec = procedural(4);
  spec.procedural->summaries = 0;
  spec.procedural->levels = 0;
  Reader reader(spec);
  reader.read(32 + 10 * 16);
  // Ten blocks, the first without its two sinks, of which each of four heads keeps four rows.
  EXPECT_EQ(reader.state.past()->counts().shed_mass, 4.0 * (10 * 16 - 2 - 10 * 4));
}

TEST(ProceduralMemory, HardShedding_LeavesTheBestRowsOfALevelAcrossHeads) {
  KvSpec spec = procedural(6);
  spec.procedural->level_rows = 10;
  Reader reader(spec);
  reader.read(1000);
  const auto counts = reader.state.past()->counts();
  EXPECT_EQ(counts.outlier_rows + counts.summary_rows[0] + counts.summary_rows[1], 2 * 2 * 2 * 10)
      << "two layers, two levels, two heads of ten on average";
  EXPECT_GT(counts.shed_hard, 0);
}

TEST(ProceduralMemory, TheBudgetCountsPinsAndNeverMoreIsHeld) {
  for (const bool full : {false, true}) {
    KvSpec spec = procedural(4, full);
    if (full) spec.procedural->full_rows = 64;
    spec.procedural->pins = {{100, 400}};
    Reader reader(spec);
    reader.read(1500);
    EXPECT_LE(reader.state.bytes_peak(), most_bytes(spec, 1500).total());
    const std::int64_t pinned = most_bytes(spec, 1500).total();
    spec.procedural->pins.clear();
    EXPECT_GE(pinned - most_bytes(spec, 1500).total(), 4 * 300 * 2 * 34)
        << "keys and values of 32 numbers in q8_0";
  }
}

KvSpec spilling(const std::string& path) {
  KvSpec spec = procedural(4, true);
  for (auto& heads : spec.procedural->plans)
    for (HeadPlan& plan : heads) plan.whole = true;
  spec.procedural->full_rows = 64;
  spec.procedural->spill = path;
  return spec;
}

TEST(Spilling, EveryRowIsStillRead) {
  const testing::TemporaryFolder folder;
  Reader reader(spilling(folder.path("spill")));
  reader.read(400);
  const auto counts = reader.state.past()->counts();
  EXPECT_EQ(counts.spilled_rows, counts.full_rows - 4 * 64);
  for (const Pos p : {2, 15, 16, 100, 300, 351}) EXPECT_EQ(reader.shown(1, 0, p), 1) << p;
}

TEST(Spilling, AForkAndItsOriginalGoOnApart) {
  const testing::TemporaryFolder folder;
  Reader reader(spilling(folder.path("spill")));
  reader.read(400);
  KvState fork = reader.state.fork();
  reader.read(400);
  Reader other(procedural(4));
  other.state = std::move(fork);
  other.read(100);
  for (const Pos p : {2, 300, 440}) EXPECT_EQ(other.shown(0, 1, p), 1) << p;
  for (const Pos p : {2, 300, 440, 700}) EXPECT_EQ(reader.shown(0, 1, p), 1) << p;
}

TEST(Spilling, WhatIsClearedStartsAnew) {
  const testing::TemporaryFolder folder;
  Reader reader(spilling(folder.path("spill")));
  reader.read(400);
  reader.state.clear();
  EXPECT_EQ(reader.state.past()->counts().spilled_rows, 0);
  reader.read(400);
  EXPECT_EQ(reader.shown(1, 0, 100), 1);
}

TEST(Spilling, AFileThatCannotBeMadeIsNamed) {
  expect_refused(ErrorCode::io, "/nowhere/at/all", [] { KvState state(spilling("/nowhere/at/all")); });
}

TEST(ErrorBins, GiveTheMeanExactlyAndQuantilesWithinFourPercent) {
  ErrorBins bins;
  for (int i = 1; i <= 1000; ++i) bins.add(0.001 * i);
  const Spread spread = bins.spread();
  EXPECT_NEAR(spread.mean, 0.5005, 1e-9);
  EXPECT_NEAR(spread.p50, 0.5, 0.02);
  EXPECT_NEAR(spread.p99, 0.99, 0.04);
}

TEST(ErrorBins, TakeWhateverComes) {
  ErrorBins bins;
  EXPECT_EQ(bins.spread().p99, 0.0);
  bins.add(0.0);
  EXPECT_EQ(bins.spread().p50, 0.0);
  bins.add(1e30);
  EXPECT_GT(bins.spread().p99, 900.0);
}

TEST(DriftMeter, NamesTheLayerWhoseOutputIsWorstOnAverage) {
  DriftMeter meter;
  meter.add(3, {{0.1, 0.1}, {0, 0}, {1, 1}});
  meter.add(7, {{0.0, 0.4}, {0, 0}, {1, 0.5}});
  meter.add(3, {{0.2, 0.2}, {0, 0}, {1, 1}});
  const Drift drift = meter.drift(2);
  EXPECT_EQ(drift.worst_layer, 7);
  EXPECT_NEAR(drift.worst_output, 0.2, 1e-12);
  ASSERT_EQ(drift.heads.size(), 4u);
  EXPECT_NEAR(drift.heads[1].output, 0.15, 1e-12);
  EXPECT_NEAR(drift.overlap.mean, 5.5 / 6.0, 1e-12);
}

}  // namespace
}  // namespace kvtide
