// A budget without an end: rows stay exact, then in eight bits, and are sealed when the budget is full.
#include "state/procedural/stages.h"

#include <gtest/gtest.h>

#include "kvtide/error.h"
#include "state/procedural/budget.h"
#include "state/snapshot.h"
#include "tests/base/memory_files.h"
#include "tests/state/procedural/procedural_state.h"

namespace kvtide {
namespace {

using testing::feed;
using testing::MemoryFiles;

// The procedural_spec of the tests with so many bytes and the stages that they allow.
KvSpec staged_spec(std::int64_t budget, DType type = DType::f16) {
  KvSpec spec = testing::procedural_spec();
  spec.key_type = spec.value_type = type;
  spec.procedural->far_from = 4096;
  spec.procedural->budget = budget;
  spec.procedural->stages = row_stages(spec);
  place_references(*spec.procedural);
  return spec;
}

constexpr std::int64_t kBudget = 1 << 20;

TEST(RowStages, GoOnForAsLongAsTheBudgetHoldsThem) {
  const KvSpec spec = staged_spec(kBudget);
  const auto& stages = spec.procedural->stages;
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].key_type, DType::f16);
  EXPECT_EQ(stages[1].key_type, DType::q8_0);
  EXPECT_GT(stages[1].until, stages[0].until * 3 / 2);
  EXPECT_LE(planned_bytes(spec).total(), kBudget);
  EXPECT_GE(bytes_of_stages(spec), kBudget / 100 * 92);
  const KvSpec twice = staged_spec(2 * kBudget);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_GT(twice.procedural->stages[i].until, stages[i].until);
}

TEST(RowStages, AreThoseThatSaveSomething) {
  EXPECT_EQ(staged_spec(kBudget, DType::q8_0).procedural->stages.size(), 1u);
  EXPECT_EQ(staged_spec(200 << 10).procedural->stages.size(), 0u) << "little more than the memory itself";
  const KvSpec wide = staged_spec(kBudget << 6);
  EXPECT_EQ(wide.procedural->stages.size(), 1u);
  EXPECT_EQ(wide.procedural->stages[0].until, 4096) << "no row is seen from further than that";
  KvSpec spec = staged_spec(kBudget);
  for (auto& heads : spec.procedural->plans)
    for (HeadPlan& plan : heads) plan.full = true;
  EXPECT_EQ(row_stages(spec).size(), 1u) << "sealing is a rewriting itself";
  spec.procedural->exact_first = false;
  EXPECT_EQ(row_stages(spec).size(), 0u);
}

TEST(RowStages, KeepEveryRowThenRewriteThenSealInsideTheBudget) {
  ThreadPool pool(2);
  for (const std::int64_t budget : {440 << 10, 500 << 10, 1 << 20, 3 << 20}) {
    const KvSpec spec = staged_spec(budget);
    const auto& stages = spec.procedural->stages;
    ASSERT_FALSE(stages.empty()) << budget;
    KvState state(spec);
    std::size_t changes = 0;
    const auto look = [&] {
      ASSERT_LE(state.held_bytes(), budget) << state.position();
      if (!state.is_settled()) return;
      const RowStage* stage = stage_at(*spec.procedural, state.position());
      ASSERT_EQ(state.spec().key_type, stage != nullptr ? stage->key_type : spec.key_type);
      ASSERT_EQ(state.past()->exact_from() == 0, stage != nullptr) << state.position();
      changes += state.newest_changes().size();
    };
    feed(state, pool, stages.back().until + 500, 16, look);
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_LE(state.bytes_peak(), budget);
    EXPECT_GT(changes, stages.size());
    EXPECT_LT(state.position() - state.past()->exact_from(), 48 + 32);
    EXPECT_EQ(state.past()->counts().blocks_sealed, state.past()->exact_from() / 32);
    state.past()->audit();
  }
}

std::vector<std::byte> saved(const KvState& state) {
  MemoryFiles files;
  save_snapshot(files, "state", state,
                {{}, false, std::vector<TokenId>(static_cast<std::size_t>(state.position())), {}});
  return files.get("state");
}

TEST(RowStages, ArePureFunctionsOfTheTokens) {
  const KvSpec spec = staged_spec(500 << 10);
  const auto& stages = spec.procedural->stages;
  ASSERT_EQ(stages.size(), 2u);
  for (const Pos length :
       {stages[0].until - 1, stages[0].until, stages[1].until - 1, stages[1].until, stages[1].until + 100}) {
    ThreadPool one(1), two(2);
    KvState whole(spec), pieces(spec);
    feed(whole, one, length, 16);
    feed(pieces, two, length, 3);
    EXPECT_EQ(saved(whole), saved(pieces)) << length;
  }
}

TEST(RowStages, SnapshotsForksAndClearedStatesGoOnFromEveryStage) {
  ThreadPool pool(1);
  const KvSpec spec = staged_spec(500 << 10);
  const auto& stages = spec.procedural->stages;
  const Pos end = stages[1].until + 200;
  KvState whole(spec);
  feed(whole, pool, end);
  const auto expected = saved(whole);
  for (const Pos at :
       {Pos{100}, stages[0].until, stages[0].until + 70, stages[1].until, stages[1].until + 90}) {
    KvState state(spec);
    feed(state, pool, at);
    MemoryFiles files;
    save_snapshot(files, "state", state, {{}, false, std::vector<TokenId>(static_cast<std::size_t>(at)), {}});
    KvState restored = load_snapshot(files, "state", {}).state, fork = state.fork();
    restored.set_max_step(16);
    for (KvState* other : {&restored, &fork}) {
      feed(*other, pool, end - at);
      EXPECT_EQ(saved(*other), expected) << at;
    }
    state.clear();
    EXPECT_EQ(state.spec().key_type, DType::f16);
    feed(state, pool, end);
    EXPECT_EQ(saved(state), expected) << at;
  }
}

TEST(RowStages, AreNotGoneBackBehind) {
  ThreadPool pool(1);
  KvSpec spec = staged_spec(600 << 10);
  spec.layers[1].window.reset();  // which would have moved on
  spec.procedural->plans[1] = {{false, false, 8, 1.0f}};
  spec.procedural->stages = row_stages(spec);
  place_references(*spec.procedural);
  const auto& stages = spec.procedural->stages;
  ASSERT_EQ(stages.size(), 2u);
  const Pos end = stages[1].until + 50;
  KvState state(spec), straight(spec);
  feed(straight, pool, end);
  feed(state, pool, stages[0].until - 1);
  state.apply(Truncate{200});
  KvState again = state.fork();
  feed(again, pool, end - 200);
  EXPECT_EQ(saved(again), saved(straight));
  feed(state, pool, stages[0].until + 10 - 200);
  EXPECT_FALSE(state.plan(Truncate{stages[0].until - 1}));
  state.apply(Truncate{stages[0].until});
  EXPECT_EQ(state.position(), stages[0].until);
  feed(state, pool, stages[1].until - stages[0].until);
  EXPECT_FALSE(state.plan(Truncate{stages[1].until - 1}));
}

TEST(RowStages, AreNotGoneBackInWhereALayersWindowHasMovedOn) {
  ThreadPool pool(1);
  KvState state(staged_spec(500 << 10));
  feed(state, pool, 300);
  EXPECT_FALSE(state.plan(Truncate{200}));
  EXPECT_EQ(state.nearest_to(200), 0);
}

TEST(RowStages, ImagesOfOtherTypesAreRefused) {
  ThreadPool pool(1);
  const KvSpec spec = staged_spec(500 << 10);
  KvState state(spec);
  feed(state, pool, 300);
  StateImage image = state.image();
  image.spec.key_type = image.spec.value_type = DType::q8_0;
  EXPECT_THROW(KvState{image}, Error);
  image = state.image();
  image.spec.procedural->stages[0].until = 200;
  EXPECT_THROW(KvState{image}, Error);
  std::swap(image.spec.procedural->stages[0], image.spec.procedural->stages[1]);
  EXPECT_THROW(KvState{image}, Error);
}

}  // namespace
}  // namespace kvtide
