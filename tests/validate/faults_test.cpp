// Faults planted in a model that is driven as ports are: each must be found and named, by what was measured.
#include <gtest/gtest.h>

#include "kvtide/validate.h"
#include "tests/engine/logits.h"
#include "tests/validate/hybrid_shards.h"

namespace kvtide {
namespace {

using testing::Fault;

ValidationReport report_on(Fault fault, bool integers = false, std::uint64_t seed = 11, int only = -1) {
  const testing::HybridWeights weights(3, seed, integers ? 300.0f : 20.0f);
  testing::HybridReference reference(weights);
  testing::HybridShards model(weights, fault, integers, only);
  ValidateOptions options;
  if (integers) options.gate = options.apart_gate = options.row_gate = 0.97;
  const auto tokens = testing::random_tokens(23, testing::kVocab, seed / 2);
  return validate(model, reference, tokens, options);
}

struct Expected {
  Fault fault;
  const char* cause;
  int layer;
  Pos token;
  const char* words;  // part of the sentence
  bool integers = false;
};

TEST(ValidateFaults, CorrectShardsRaiseNoAlarm) {
  const ValidationReport report = report_on(Fault::none);
  EXPECT_TRUE(report.passed) << report_text(report);
  EXPECT_TRUE(report.findings.empty()) << report_text(report);
}

TEST(ValidateFaults, CorrectShardsOfEightBitIntegersRaiseNoAlarm) {
  const ValidationReport report = report_on(Fault::none, true);
  EXPECT_TRUE(report.passed) << report_text(report);
}

class PlantedFault : public ::testing::TestWithParam<Expected> {};

TEST_P(PlantedFault, IsNamedWithItsLayerAndItsToken) {
  const Expected& expected = GetParam();
  const ValidationReport report = report_on(expected.fault, expected.integers);
  EXPECT_FALSE(report.passed) << report_text(report);
  ASSERT_FALSE(report.findings.empty());
  const Finding& first = report.findings.front();
  EXPECT_EQ(first.cause, expected.cause) << report_text(report);
  EXPECT_EQ(first.layer, expected.layer) << report_text(report);
  EXPECT_EQ(first.token, expected.token) << report_text(report);
  EXPECT_NE(first.what.find(expected.words), std::string::npos) << report_text(report);
  EXPECT_FALSE(first.advice.empty());
}

INSTANTIATE_TEST_SUITE_P(
    Twelve, PlantedFault,
    ::testing::Values(
        Expected{Fault::write_slot, "write_slot", 0, 0, "holds the rows of token"},
        Expected{Fault::off_by_one, "position_off_by_one", 0, 0, "rotated for position 1"},
        Expected{Fault::short_mask, "mask_too_short", 0, 1, "sees its own row and no other"},
        Expected{Fault::stale_rows, "stale_rows", 0, 11, "taken back are still seen"},
        Expected{Fault::interleaved, "heads_interleaved", 0, 0, "read as [tokens, heads]"},
        Expected{Fault::rope_width, "rope_width", 0, 1, "over 8 dimensions of the 8 of a head instead of 4"},
        Expected{Fault::history_dropped, "history_dropped", 0, 4, "first 2 tokens of every call"},
        Expected{Fault::halves_swapped, "value_halves_swapped", 0, 0, "are those of head 0"},
        Expected{Fault::shared_state, "state_shared_between_shards", 0, 0, "reference's rows of layer 2"},
        Expected{Fault::recreated, "state_recreated", 0, 4, "rows of the last call only"},
        Expected{Fault::tensor_scale, "one_scale_per_tensor", 0, 1, "of one size in all channels", true},
        Expected{Fault::saturates, "position_saturates", 0, 18, "the position stopped at 17"}));

INSTANTIATE_TEST_SUITE_P(
    More, PlantedFault,
    ::testing::Values(Expected{Fault::rows_interleaved, "heads_interleaved", 0, 0, "is that of head"},
                      Expected{Fault::mask_of_call, "mask_too_short", 0, 1, "rows of its own call"},
                      Expected{Fault::not_causal, "not_causal", 0, 0, "later tokens of their own call"},
                      Expected{Fault::history_kept, "history_not_rolled_back", 0, 11, "beside the rows"},
                      Expected{Fault::shared_sequences, "state_shared_between_sequences", 0, 11,
                               "depends on the other"}));

// Other weights and another text: a diagnosis does not hang on one lucky case.
TEST(ValidateFaults, AreNamedAlikeForOtherWeightsAndTexts) {
  const std::pair<Fault, const char*> faults[] = {{Fault::write_slot, "write_slot"},
                                                  {Fault::off_by_one, "position_off_by_one"},
                                                  {Fault::short_mask, "mask_too_short"},
                                                  {Fault::stale_rows, "stale_rows"},
                                                  {Fault::interleaved, "heads_interleaved"},
                                                  {Fault::rope_width, "rope_width"},
                                                  {Fault::history_dropped, "history_dropped"},
                                                  {Fault::halves_swapped, "value_halves_swapped"},
                                                  {Fault::shared_state, "state_shared_between_shards"},
                                                  {Fault::recreated, "state_recreated"},
                                                  {Fault::saturates, "position_saturates"},
                                                  {Fault::history_kept, "history_not_rolled_back"}};
  for (std::uint64_t seed = 20; seed < 26; ++seed) {
    EXPECT_TRUE(report_on(Fault::none, false, seed).passed) << seed;
    EXPECT_TRUE(report_on(Fault::none, true, seed).passed) << seed;
    for (const auto& [fault, cause] : faults) {
      const ValidationReport report = report_on(fault, false, seed);
      ASSERT_FALSE(report.findings.empty()) << cause << seed;
      EXPECT_EQ(report.findings.front().cause, cause) << seed << "\n" << report_text(report);
    }
    const ValidationReport report = report_on(Fault::tensor_scale, true, seed);
    ASSERT_FALSE(report.findings.empty()) << seed;
    EXPECT_EQ(report.findings.front().cause, "one_scale_per_tensor") << seed << "\n" << report_text(report);
  }
}

TEST(ValidateFaults, ALayerIsNamedThatAloneIsWrong) {
  for (const Fault fault :
       {Fault::write_slot, Fault::off_by_one, Fault::short_mask, Fault::interleaved, Fault::rope_width,
        Fault::history_dropped, Fault::halves_swapped, Fault::not_causal}) {
    const ValidationReport report = report_on(fault, false, 11, 1);
    ASSERT_FALSE(report.findings.empty());
    EXPECT_EQ(report.findings.front().layer, 1) << report_text(report);
    EXPECT_NE(report.findings.front().what.find("layer 1 is touched"), std::string::npos)
        << report_text(report);
  }
}

}  // namespace
}  // namespace kvtide
