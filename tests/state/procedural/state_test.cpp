// Procedural states with no model in sight: budgets that hold at every step, and snapshots.
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
using testing::procedural_spec;

// A spec of random sizes: full heads or none, limits or none, every row type and level.
KvSpec random_spec(testing::Rng& rng) {
  const DType types[] = {DType::f16, DType::q8_0, DType::f32};
  KvSpec spec = procedural_spec();
  spec.key_type = types[rng.below(3)];
  spec.value_type = types[rng.below(3)];
  spec.max_step = 1 + rng.below(100);
  spec.slack = rng.below(3) * 5;
  ProceduralSpec& p = *spec.procedural;
  p.block = 16 + rng.below(80);
  p.window = p.block + rng.below(100);
  p.sinks = rng.below(6);
  p.summaries = rng.below(5);
  p.summary = static_cast<Summary>(rng.below(3));
  p.score = static_cast<RowScore>(rng.below(4));
  p.levels = static_cast<int>(rng.below(4));
  p.plain_type = rng.below(2) == 0 ? DType::q4_0 : types[rng.below(3)];
  p.copy_type = rng.below(2) == 0 ? DType::q4_0 : types[rng.below(3)];
  p.full_rows = rng.below(2) * (16 + rng.below(300));
  p.far = static_cast<FarRule>(rng.below(2));
  p.far_from = rng.below(2) * (2 * (p.window + spec.slack + p.block) + rng.below(300));
  p.reference_stride = rng.below(3);
  p.reference_type = rng.below(2) == 0 ? DType::q4_0 : rng.below(2) == 0 ? DType::f16 : DType::q8_0;
  for (auto& heads : p.plans)
    for (HeadPlan& plan : heads)
      plan = {rng.below(4) == 0, false, rng.below(p.block + 1), rng.real(0.1f, 2.0f)};
  return spec;
}

TEST(ProceduralBudget, IsNeverExceededAtAnyStep) {
  testing::Rng rng(7);
  ThreadPool pool(1);
  for (int round = 0; round < 40; ++round) {
    const KvSpec spec = random_spec(rng);
    const std::int64_t tokens = 1 + rng.below(round % 4 == 0 ? 2500 : 900);
    const std::int64_t most = most_bytes(spec, tokens).total();
    KvState state(spec);
    std::int64_t peak = 0;
    feed(state, pool, tokens, 1 + rng.below(spec.max_step), [&] {
      peak = std::max(peak, state.held_bytes());
      ASSERT_LE(state.held_bytes(), most)
          << "round " << round << " at position " << state.position() << " of " << tokens << ", block "
          << spec.procedural->block << ", levels " << spec.procedural->levels << ", full rows "
          << spec.procedural->full_rows << ", far from " << spec.procedural->far_from;
    });
    if (::testing::Test::HasFatalFailure()) return;
    EXPECT_GE(state.bytes_peak(), peak);  // also while a block is there twice
    EXPECT_LE(state.bytes_peak(), most);
  }
}

TEST(ProceduralBudget, WithoutAnEndIsNeverExceededEither_ByForksOrStatesThatWereTakenBack) {
  ThreadPool pool(1);
  KvSpec spec = procedural_spec();
  spec.slack = 6;
  const std::int64_t most = most_bytes(spec, 0).total();
  KvState state(spec);
  for (int round = 0; round < 30; ++round) {
    feed(state, pool, 67, 16, [&] { ASSERT_LE(state.held_bytes(), most) << state.position(); });
    if (::testing::Test::HasFatalFailure()) return;
    if (round % 3 == 1) state = state.fork();
    if (round % 3 == 2 && state.position() - state.past()->last_seal() > 5)
      state.apply(Truncate{state.position() - 5});
  }
  EXPECT_GT(state.past()->counts().consolidations, 5);
}

TEST(ProceduralBudget, IsNotExceededByForks_WhereBlocksAreWholeTiles) {
  ThreadPool pool(1);
  KvSpec spec = procedural_spec();
  spec.key_type = spec.value_type = DType::q8_0;  // tiles are no whole pages
  spec.slack = 6;
  spec.procedural->block = 64;
  spec.procedural->window = 128;
  for (const std::int64_t apart : {67, 99, 128}) {
    const std::int64_t most = most_bytes(spec, 0).total();
    KvState state(spec);
    for (int round = 0; round < 30; ++round) {
      feed(state, pool, apart, 16, [&] { ASSERT_LE(state.held_bytes(), most) << state.position(); });
      if (::testing::Test::HasFatalFailure()) return;
      state = state.fork();
    }
  }
}

TEST(ProceduralBudget, CountsTheTurnsOfEveryBlockThatIsSeenNearer) {
  // One head that keeps a row of each of 373 blocks: their turns of 2 x 4 x 16 bytes outgrow what pages leave
  // over.
  ThreadPool pool(1);
  KvSpec spec = procedural_spec();
  spec.layers = {{1, testing::kFedDim, std::nullopt, spec.layers[0].frequencies}};
  ProceduralSpec& p = *spec.procedural;
  p.frequencies.resize(1);
  p.block = p.window = 16;
  p.summaries = 1;
  p.levels = 0;
  p.plans = {{{false, false, 1, 1.0f}}};
  const std::int64_t most = most_bytes(spec, 6000).total();
  KvState state(spec);
  feed(state, pool, 6000);
  EXPECT_LE(state.bytes_peak(), most);
  p.far_from = 0;
  EXPECT_GT(state.bytes_peak(), most_bytes(spec, 6000).total()) << "the turns prove nothing";
}

TEST(ProceduralBudget, CountsTheTurnsOfPinnedRowsThatStayAlone) {
  KvSpec spec = procedural_spec();
  spec.procedural->levels = 1;
  for (Pos p = 10; p < 6000; p += 64) spec.procedural->pins.push_back({p, p + 1});
  ThreadPool pool(1);
  const ProceduralBytes most = most_bytes(spec, 6000);
  KvState state(spec);
  feed(state, pool, 6000);
  EXPECT_LE(state.bytes_peak(), most.total());
  // As many in one place lie in few blocks.
  spec.procedural->pins = {{10, 10 + std::ssize(spec.procedural->pins)}};
  EXPECT_LT(most_bytes(spec, 6000).compact, most.compact);
}

TEST(ProceduralBudget, GrowsWithWhatIsKeptAndNamesWhatFor) {
  const KvSpec spec = procedural_spec();
  const ProceduralBytes base = most_bytes(spec, 5000);
  for (const std::int64_t part : {base.window, base.rings, base.references, base.compact, base.full})
    EXPECT_GT(part, 0);
  EXPECT_EQ(base.total(), base.window + base.rings + base.references + base.compact + base.full);
  KvSpec other = spec;
  other.procedural->window += 64;
  EXPECT_GT(most_bytes(other, 5000).window, base.window);
  other = spec;
  for (HeadPlan& plan : other.procedural->plans[2]) plan.rows += 20;
  EXPECT_GT(most_bytes(other, 5000).compact, base.compact);
  EXPECT_EQ(most_bytes(other, 5000).full, base.full);
  other = spec;
  other.procedural->full_rows = 1000;
  EXPECT_GT(most_bytes(other, 5000).full, base.full);
  // Nothing is sealed of a short text.
  EXPECT_EQ(most_bytes(spec, 79).full, 0);
  EXPECT_EQ(most_bytes(spec, 79).compact, 0);
  EXPECT_GT(most_bytes(spec, 80).compact, 0);
}

std::vector<std::byte> snapshot_of(const KvState& state) {
  MemoryFiles files;
  save_snapshot(files, "a", state, {});
  return files.get("a");
}

// Layers with a window of their own let go of rows chunk by chunk; without them nothing depends on chunks.
KvSpec without_windows() {
  KvSpec spec = procedural_spec();
  spec.layers.erase(spec.layers.begin() + 1);
  spec.procedural->plans.erase(spec.procedural->plans.begin() + 1);
  spec.procedural->frequencies.pop_back();
  return spec;
}

TEST(ProceduralState, ItsSnapshotIsTheSameBytesForEveryChunkAndThreadCount) {
  ThreadPool one(1), three(3);
  KvState reference(without_windows());
  feed(reference, one, 700);
  const auto wanted = snapshot_of(reference);
  for (const std::int64_t chunk : {1, 5, 16}) {
    KvState state(without_windows());
    feed(state, chunk == 5 ? three : one, 700, chunk);
    EXPECT_TRUE(snapshot_of(state) == wanted) << chunk << " tokens at once";
  }
}

// Where the window is wider than what has references, one step may hold several positions of the same slot.
TEST(ProceduralState, WithAWideWindow_ItsSnapshotIsTheSameBytesForEveryChunk) {
  KvSpec spec = without_windows();
  spec.procedural->window = 20 * spec.procedural->block;
  spec.max_step = spec.capacity = 2 * spec.procedural->window;
  place_references(*spec.procedural);
  ASSERT_GT(spec.procedural->reference_span, 0);
  ThreadPool pool(1);
  std::vector<std::byte> wanted;
  for (const std::int64_t chunk : {1, 16, 1000}) {
    KvState state(spec);
    feed(state, pool, 30 * spec.procedural->block, chunk);
    ASSERT_GT(state.past()->counts().blocks_sealed, 5);
    if (wanted.empty()) wanted = snapshot_of(state);
    EXPECT_TRUE(snapshot_of(state) == wanted) << chunk << " tokens at once";
  }
}

// As procedural_spec(), with full rows of four bits.
TEST(ProceduralState, InFourBits_ItsSnapshotIsTheSameBytesForEveryChunk_AndForksGoOnAlike) {
  ThreadPool pool(1);
  KvSpec spec = without_windows();
  spec.procedural->copy_type = DType::q4_0;
  KvState reference(spec);
  feed(reference, pool, 700);
  ASSERT_GT(reference.past()->counts().thinned, 0);
  const auto wanted = snapshot_of(reference);
  for (const std::int64_t chunk : {1, 5, 16}) {
    KvState state(spec);
    feed(state, pool, 300, chunk);
    KvState fork = state.fork();
    feed(state, pool, 400, chunk);
    feed(fork, pool, 400);
    EXPECT_TRUE(snapshot_of(state) == wanted) << chunk;
    EXPECT_TRUE(snapshot_of(fork) == wanted) << chunk;
  }
}

TEST(ProceduralState, FullRowsOfFourBits_TakeNinthsOfThoseOfEightBits) {
  // 128 rows and a block of 32 more, with 18 or 34 bytes per key or value of 32 numbers; scores and positions
  // beside them are the same. The mean key of the one head has 32 floats.
  const std::int64_t eight = most_bytes(procedural_spec(), 5000).full;
  const std::int64_t four = most_bytes(testing::four_bit_spec(), 5000).full;
  EXPECT_EQ(eight, 2 * 8192 + 192 * 8);
  EXPECT_EQ(four, 2 * 4096 + 192 * 8 + 128);
}

TEST(ProceduralState, RefusesRowTypesThatItCannotKeep) {
  const auto refusal = [](DType rows, DType full) -> std::string {
    KvSpec spec = procedural_spec();
    spec.procedural->plain_type = rows;
    spec.procedural->copy_type = full;
    try {
      KvState state(spec);
    } catch (const Error& error) {
      return error.message();
    }
    return "";
  };
  EXPECT_EQ(refusal(DType::q8_0, DType::q4_0), "");
  EXPECT_EQ(refusal(DType::q4_0, DType::q4_0), "");
  EXPECT_NE(refusal(DType::q6_k, DType::q4_0).find("f32, f16, q8_0 or q4_0, not q6_k"), std::string::npos);
  EXPECT_NE(refusal(DType::q8_0, DType::q6_k).find("f32, f16, q8_0 or q4_0, not q6_k"), std::string::npos);
  KvSpec tiny = testing::tiny_procedural_spec();
  tiny.procedural->copy_type = DType::q4_0;
  try {
    KvState state(tiny);
    ADD_FAILURE() << "no refusal";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("q4_0 needs heads of a multiple of 32 elements, not 4; use f16"),
              std::string::npos)
        << error.message();
  }
}

TEST(ProceduralState, KeepsScoresToShedRowsOnly) {
  ThreadPool pool(1);
  const KvSpec scored = procedural_spec();
  KvSpec plain = scored;
  plain.procedural->keeps_scores = false;
  KvState with(scored), without(plain);
  feed(with, pool, 600);
  feed(without, pool, 600);
  const auto tensors_of_scores = [](const KvState& state) {
    const auto tensors =
        procedural_tensors(*state.spec().procedural, state.past()->image(), testing::kFedDim);
    return std::count_if(tensors.begin(), tensors.end(),
                         [](const auto& t) { return t.name.ends_with(".score"); });
  };
  EXPECT_EQ(tensors_of_scores(with), 4);
  EXPECT_EQ(tensors_of_scores(without), 0);
  EXPECT_LT(without.held_bytes(), with.held_bytes());
  EXPECT_EQ(without.past()->counts().summary_rows, with.past()->counts().summary_rows);
  EXPECT_EQ(without.past()->counts().outlier_rows, with.past()->counts().outlier_rows);
  plain.procedural->shed_below = 0.5f;
  EXPECT_THROW(KvState{plain}, Error);
}

class ProceduralSnapshot : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(OfEveryRowType, ProceduralSnapshot,
                         ::testing::Values(DType::q8_0, DType::q4_0, DType::f16),
                         [](const auto& type) { return std::string(dtype_info(type.param).name); });

TEST_P(ProceduralSnapshot, GoesOnAsTheStateThatWasSaved) {
  ThreadPool pool(1);
  for (const std::int64_t at : {0, 2, 30, 79, 80, 81, 112, 399, 400, 432, 800}) {
    const KvSpec spec = testing::spec_with_past_in(GetParam());
    KvState state(spec);
    feed(state, pool, at);
    MemoryFiles files;
    SnapshotExtras extras;
    extras.tokens.assign(static_cast<std::size_t>(at), 7);
    save_snapshot(files, "a", state, extras);
    Snapshot loaded = load_snapshot(files, "a");
    EXPECT_EQ(loaded.extras.tokens, extras.tokens);
    EXPECT_EQ(loaded.state.position(), at);
    EXPECT_EQ(loaded.state.held_bytes(), state.held_bytes()) << at;
    EXPECT_TRUE(snapshot_of(loaded.state) == snapshot_of(state)) << at;
    feed(state, pool, 300);
    feed(loaded.state, pool, 300);
    EXPECT_TRUE(snapshot_of(loaded.state) == snapshot_of(state)) << at << " and 300 more";
    EXPECT_EQ(loaded.state.past()->counts().blocks_sealed, state.past()->counts().blocks_sealed);
  }
}

TEST(ProceduralState, ClearedOneReadsAsIfItWereNew) {
  ThreadPool pool(1);
  KvState state(procedural_spec()), fresh(procedural_spec());
  const std::int64_t empty = fresh.held_bytes();
  feed(state, pool, 900);
  state.clear();
  EXPECT_EQ(state.past()->counts().blocks_sealed, 0);
  EXPECT_LE(state.held_bytes(), empty + 16 * 4 * 256) << "notes may stay reserved";
  feed(state, pool, 500);
  feed(fresh, pool, 500);
  EXPECT_TRUE(snapshot_of(state) == snapshot_of(fresh));
}

// The positions of the rows that a head keeps.
std::vector<std::int32_t> positions_of(const KvState& state, const std::string& head) {
  const auto tensors = procedural_tensors(memory_spec(state.spec()), state.past()->image(), testing::kFedDim);
  const auto parts = state.past()->payload();
  std::vector<std::int32_t> positions;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].name == "procedural." + head + ".position") {
      positions.resize(parts[i].size() / 4);
      std::memcpy(positions.data(), parts[i].data(), parts[i].size());
    }
  return positions;
}

TEST(ProceduralState, FullHeadsKeepTheSamePassages_AlsoInALayerOfFullHeadsOnly) {
  ThreadPool pool(1);
  KvSpec spec = procedural_spec();
  spec.procedural->plans[0][0].full = spec.procedural->plans[0][1].full = true;
  spec.procedural->plans[2][0].full = true;
  KvState state(spec);
  feed(state, pool, 700);
  ASSERT_GT(state.past()->counts().thinned, 0);
  const auto passages = [&](const std::string& head) {
    std::map<std::int32_t, int> rows;
    for (const std::int32_t position : positions_of(state, head)) ++rows[position / 16];
    return rows;
  };
  const auto kept = passages("0.0");
  EXPECT_GT(kept.size(), 4u);
  EXPECT_EQ(kept, passages("0.1"));
  EXPECT_EQ(kept, passages("2.0"));
  int whole = 0;
  for (const auto& [passage, rows] : kept) whole += rows == 16;
  EXPECT_GT(2 * whole, static_cast<int>(kept.size())) << "most passages are there from end to end";
}

TEST(ProceduralState, RowsOfAHeadStandForEveryTokenButTheLostOnes) {
  ThreadPool pool(1);
  for (const std::int64_t summaries : {0, 2}) {
    KvSpec spec = procedural_spec();
    spec.procedural->summaries = summaries;
    KvState state(spec);
    feed(state, pool, 1200);
    const ProceduralImage image = state.past()->image();
    double stand = 0.0;
    // Counts of the plain heads' rows: in the payload after keys, values, positions and scores and biases.
    const auto tensors = procedural_tensors(memory_spec(spec), image, testing::kFedDim);
    const auto parts = std::as_const(*state.past()).payload();
    ASSERT_EQ(tensors.size(), parts.size());
    for (std::size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].name.ends_with(".count"))
        for (std::size_t at = 0; at < parts[i].size(); at += 4) {
          float count = 0.0f;
          std::memcpy(&count, parts[i].data() + at, 4);
          stand += static_cast<double>(count);
        }
    const auto full = static_cast<double>(state.past()->counts().full_rows);
    const auto sealed = static_cast<double>(image.sealed - spec.procedural->sinks);
    EXPECT_NEAR(stand + full + image.counts.shed_mass, 4 * sealed, 1e-6) << summaries << " summaries";
  }
}

// A memory that grows with the text, with what 200 tokens of it need.
KvSpec growing_spec() {
  KvSpec spec = procedural_spec();
  spec.procedural->levels = 0;
  spec.procedural->budget_for = 200;
  spec.procedural->budget = planned_bytes(spec).total();
  return spec;
}

TEST(ProceduralBudget, IsHeldByTheStateItself) {
  KvState state(growing_spec());
  ThreadPool pool(1);
  testing::feed(state, pool, 200);
  const auto refused = [&](ErrorCode code, const char* part, const auto& call) {
    try {
      call();
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
    }
    EXPECT_EQ(state.position(), 200);
  };
  const std::int64_t budget = state.spec().procedural->budget;
  EXPECT_LE(state.bytes_peak(), budget);
  refused(ErrorCode::context_full, "was planned for 200 tokens", [&] { state.check_budget(4000); });
  KvState fork = state.fork();
  refused(ErrorCode::context_full, "was planned for 200 tokens", [&] { testing::feed(fork, pool, 4000); });
  EXPECT_LE(fork.bytes_peak(), budget);
  refused(ErrorCode::invalid_argument, "more than the KV budget", [&] { state.set_budget(budget - 1, 200); });
  EXPECT_EQ(state.spec().procedural->budget, budget);
  state.set_max_step(10000);
  EXPECT_LE(planned_bytes(state.spec()).total(), budget) << "steps stay as long as was planned";
  state.set_budget(0, 0);
  testing::feed(state, pool, 200);
  EXPECT_EQ(state.position(), 400);
}

TEST(ProceduralBudget, RefusesPinsThatItCannotHold) {
  KvSpec spec = procedural_spec();
  spec.procedural->budget = planned_bytes(spec).total() + (1 << 16);
  KvState state(spec);
  state.pin({100, 120});
  EXPECT_THROW(state.pin({200, 900000}), Error);
  EXPECT_EQ(state.spec().procedural->pins, (std::vector<PosRange>{{100, 120}}));
}

TEST(ProceduralBudget, ThatIsTooSmallMakesNoState_AndForksAndImagesKeepIt) {
  KvSpec spec = growing_spec();
  const KvState state(spec);
  EXPECT_EQ(state.fork().spec().procedural->budget, spec.procedural->budget);
  EXPECT_EQ(KvState(state.image()).spec().procedural->budget_for, 200);
  --spec.procedural->budget;
  EXPECT_THROW(KvState{spec}, Error);
}

}  // namespace
}  // namespace kvtide
