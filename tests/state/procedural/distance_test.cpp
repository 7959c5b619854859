// Where old rows are seen: every key says by its angle at which position it seems to stand.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <tuple>

#include "base/text.h"
#include "kernels/codec.h"
#include "kernels/hadamard.h"
#include "state/procedural/far.h"
#include "tests/state/procedural/procedural_state.h"

namespace kvtide {
namespace {

constexpr double kFrequency = 0.004;  // one turn is 1,571 positions
constexpr Pos kTrained = 400;

KvSpec turning_spec(FarRule far) {
  KvSpec spec = testing::procedural_spec();
  ProceduralSpec& p = *spec.procedural;
  p.far = far;
  p.far_from = kTrained;
  for (auto& layer : spec.layers) layer.frequencies = {kFrequency};
  p.frequencies.assign(spec.layers.size(), {kFrequency});
  return spec;
}

// Keys that were turned to their position, and nothing else in them.
void read(KvState& state, ThreadPool& pool, std::int64_t tokens) {
  const Kernels& kernels = best_kernels();
  for (const Pos end = state.position() + tokens; state.position() < end;) {
    KvState::Step step = state.begin(std::min({std::int64_t{16}, state.step_room(), end - state.position()}));
    for (int layer = 0; layer < static_cast<int>(state.spec().layers.size()); ++layer)
      for (std::int64_t t = 0; t < step.tokens(); ++t) {
        const Pos position = step.first() + t;
        std::vector<float> key(testing::kFedDim, 0.0f);
        key[0] = static_cast<float>(std::cos(static_cast<double>(position) * kFrequency));
        key[1] = static_cast<float>(std::sin(static_cast<double>(position) * kFrequency));
        for (int head = 0; head < state.spec().layers[static_cast<std::size_t>(layer)].kv_heads; ++head)
          step.write(kernels.elementwise, layer, head, t, key.data(),
                     testing::fed_numbers(position, layer, head, 1, testing::kFedDim).data());
        if (!step.observes(layer, t)) continue;
        std::vector<float> masses(4, 6.0f);
        for (int head = 0; head < 4; ++head)
          step.observe_query(kernels, layer, t, head,
                             testing::fed_numbers(position, layer, head, 2, testing::kFedDim).data());
        step.observe_log_mass(layer, t, masses.data());
      }
    step.commit();
    state.seal_if_due(pool, kernels, {});
  }
}

// How far behind `reader` the key of a span's row seems to stand, of one turn.
double seen_distance_of(const Span& span, std::int64_t row, Pos reader) {
  std::vector<float> key(testing::kFedDim);
  decode_row(span.key_type, span.keys + row * span.key_stride, testing::kFedDim, key.data());
  if (span.mean_key != nullptr)
    for (std::size_t d = 0; d < key.size(); ++d) key[d] += span.mean_key[d];
  if (span.spread) hadamard(key.data(), testing::kFedDim);
  double angle = std::atan2(static_cast<double>(key[1]), static_cast<double>(key[0]));
  if (span.rotation != nullptr)
    angle += std::atan2(static_cast<double>(span.rotation[1]), static_cast<double>(span.rotation[0]));
  const double turn = 2.0 * std::acos(-1.0) / kFrequency;
  const double behind = std::fmod(static_cast<double>(reader) - angle / kFrequency, turn);
  return behind < 0.0 ? behind + turn : behind;
}

std::string name_of_rule(const std::tuple<FarRule, DType>& of) {
  return cat(name_of(std::get<0>(of)), "_", dtype_info(std::get<1>(of)).name);
}

class OldRows : public ::testing::TestWithParam<std::tuple<FarRule, DType>> {};

TEST_P(OldRows, AreSeenBehindTheWindowAndWithinTheTrainedLength_HoweverLongTheText) {
  const auto [rule, type] = GetParam();
  KvSpec spec = turning_spec(rule);
  spec.procedural->plain_type = type;
  ThreadPool pool(1);
  KvState state(spec);
  const ProceduralSpec& p = *spec.procedural;
  // Positions: keys are rounded again whenever they move up.
  const double rounded = type == DType::q4_0 ? 60.0 : 6.0;
  std::int64_t seen = 0;
  for (const Pos length : {300, 1000, 4000, 20000}) {
    read(state, pool, length - state.position());
    for (const int layer : {0, 2})
      for (int head = 0; head < 2; ++head) {
        std::vector<Span> spans;
        state.past()->append_spans(layer, head, std::nullopt, state.position(), spans);
        for (const Span& span : spans) {
          if (span.key_type != type) continue;
          for (std::int64_t row = 0; row < span.rows; ++row, ++seen) {
            const double distance = seen_distance_of(span, row, state.position());
            EXPECT_GT(distance, static_cast<double>(p.window) - rounded) << "at " << length;
            EXPECT_LT(distance, static_cast<double>(kTrained + p.block) + rounded) << "at " << length;
          }
        }
      }
  }
  EXPECT_GT(seen, 500);
}

TEST(OldRowsOfFullHeads, ShareTurnsAndStillStandWithinAnEighthOfWhereTheyBelong) {
  KvSpec spec = turning_spec(FarRule::log);
  ProceduralSpec& p = *spec.procedural;
  p.block = 16;
  p.full_rows = 1024;
  ThreadPool pool(1);
  KvState state(spec);
  read(state, pool, 4000);
  std::vector<Span> spans;
  state.past()->append_spans(0, 1, std::nullopt, state.position(), spans);
  std::set<const float*> turns;
  std::set<Pos> blocks;
  for (const Span& span : spans) {
    turns.insert(span.rotation);
    for (std::int64_t row = 0; row < span.rows; ++row) {
      const Pos at = state.past()->position_of(0, 1, span.keys + row * span.key_stride);
      blocks.insert(at / p.block);
      const Pos most = full_heads_see(kTrained, state.position());
      const auto wanted =
          static_cast<double>(seen_distance(p.far, state.position() - at, state.position(), most));
      const double off = wanted / 8.0 + static_cast<double>(2 * p.block) + 2.0;
      EXPECT_NEAR(seen_distance_of(span, row, state.position()), wanted, off) << "position " << at;
    }
  }
  EXPECT_GT(blocks.size(), 60u);
  EXPECT_LT(turns.size(), blocks.size() / 2);
}

INSTANTIATE_TEST_SUITE_P(Rules, OldRows,
                         ::testing::Combine(::testing::Values(FarRule::log, FarRule::clamp),
                                            ::testing::Values(DType::q8_0, DType::q4_0)),
                         [](const auto& one) { return name_of_rule(one.param); });

}  // namespace
}  // namespace kvtide
