// Planted faults are found, with the sentence that says which, and packages without one are left alone.
#include "coreml/lint/lint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "tests/coreml/sample_decoders.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide::coreml {
namespace {

using namespace testing;
using kvtide::testing::TemporaryFolder;

std::string all_of(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings)
    text += std::string(severity_name(finding.severity)) + " " + finding.rule + " " + finding.operation +
            ": " + finding.message + "\n";
  return text;
}

std::vector<Finding> alarms(const Package& package) {
  std::vector<Finding> found = lint(package);
  std::erase_if(found, [](const Finding& finding) { return finding.severity == Severity::hint; });
  return found;
}

void expect_found(const Package& package, const std::string& rule, const std::string& words,
                  Severity severity = Severity::error) {
  const auto findings = lint(package);
  const bool found = std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
    return finding.rule == rule && finding.severity == severity &&
           finding.message.find(words) != std::string::npos;
  });
  EXPECT_TRUE(found) << rule << ": " << words << "\nfound:\n" << all_of(findings);
}

TEST(Lint, LeavesGoodPackagesAlone) {
  int packages = 0;
  const auto expect_clean = [&](const char* style, const Package& package) {
    ++packages;
    const auto found = alarms(package);
    EXPECT_TRUE(found.empty()) << style << " " << packages << "\n" << all_of(found);
  };
  for (const int layers : {1, 2, 3})
    for (const int kv_heads : {1, 2})
      for (const int most : {1, 4}) {
        SampleOptions how;
        how.layers = layers;
        how.kv_heads = kv_heads;
        how.most_tokens = most;
        how.sdpa = most == 1;
        how.slots = 32 * layers;
        expect_clean("llama", llama_sample(how));
        expect_clean("anemll", anemll_sample(how));
        expect_clean("shard", shard_sample(how));
        if (kv_heads == 2) expect_clean("zenz", zenz_sample(how));
      }
  SampleOptions exact;
  exact.slots = 2048;  // the last length that an f16 counts to
  expect_clean("zenz", zenz_sample(exact));
  EXPECT_GE(packages, 25);
}

TEST(Lint, FindsThePositionOfZenzTracedAsAConstant) {
  const Package broken = zenz_sample({.fault = Fault::past_is_constant});
  for (const char* state : {"keyCache", "valueCache", "pastLen"})
    expect_found(broken, "old-contents-unused", state);
}

TEST(Lint, FindsAStateThatIsNeverWritten) {
  expect_found(zenz_sample({.fault = Fault::counter_not_written}), "state-never-written", "pastLen");
  expect_found(llama_sample({.fault = Fault::values_not_written}), "state-never-written", "valueCache");
}

TEST(Lint, FindsAnIndexPutThatWasLost) {
  expect_found(anemll_sample({.fault = Fault::index_put_lost}), "index-put-lost", "index_put");
}

TEST(Lint, FindsRowsThatDoNotFollowThePosition) {
  expect_found(anemll_sample({.most_tokens = 1, .fault = Fault::position_is_constant}), "position-baked-in",
               "writes rows 5 to 5 of the state 'model_model_kv_cache_0'");
  expect_found(anemll_sample({.fault = Fault::rows_scattered_at_constants}), "position-baked-in",
               "are constants");
  expect_found(shard_sample({.fault = Fault::write_mask_is_constant}), "position-baked-in",
               "which rows of the state");
  expect_found(shard_sample({.fault = Fault::one_row}), "write-extent",
               "1 row(s) whatever the number of tokens");
  expect_found(shard_sample({.fault = Fault::last_position}), "write-address", "the last of positions");
}

TEST(Lint, FindsAnInputThatReachesNothing) {
  expect_found(anemll_sample({.most_tokens = 1, .fault = Fault::position_is_constant}), "input-unused",
               "current_pos", Severity::warning);
  expect_found(shard_sample({.fault = Fault::no_rotation}), "input-unused", "rope_cos", Severity::warning);
}

TEST(Lint, FindsMasksThatSayNothing) {
  expect_found(anemll_sample({.fault = Fault::mask_is_constant}), "position-baked-in",
               "mask of an attention over 64 rows");
  expect_found(anemll_sample({.fault = Fault::no_mask}), "mask-missing", "all 64 rows");
  expect_found(anemll_sample({.fault = Fault::mask_of_one}), "mask-of-length-1", "causal_mask");
  expect_found(zenz_sample({.fault = Fault::mask_of_one}), "mask-of-length-1", "attention_mask");
}

TEST(Lint, FindsALengthThatWasTraced) {
  expect_found(llama_sample({.fault = Fault::length_is_constant}), "length-baked-in", "rows 0 to 7");
}

TEST(Lint, FindsCountersBeyondWhatAnF16Counts) {
  expect_found(zenz_sample({.slots = 4096}), "counter-inexact", "pastLen", Severity::warning);
  expect_found(shard_sample({.slots = 4096, .fault = Fault::half_position}), "counter-inexact", "k_cache",
               Severity::warning);
}

TEST(Lint, FindsACacheThatTravels) {
  expect_found(travelling_sample({}), "cache-as-input", "past_key", Severity::warning);
}

TEST(Lint, HintsAtShapesOfStates) {
  expect_found(llama_sample({.head_dim = 20}), "state-shape", "20 elements", Severity::hint);
}

TEST(Lint, SaysWhereAnOperationStands) {
  const auto findings = lint(llama_sample({.fault = Fault::length_is_constant}));
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [](const Finding& f) { return f.rule == "length-baked-in"; });
  ASSERT_NE(found, findings.end());
  EXPECT_EQ(found->function, "main");
  EXPECT_GT(found->line, 0u);
  EXPECT_EQ(found->operation.substr(0, 14), "slice_by_index");
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

TEST(Lint, ComparesSpecialIdsWithTheTokenizer) {
  const TemporaryFolder folder;
  write(folder / "tokenizer.json", R"({"model": {"vocab": {"a": 0, "b": 1}},
    "added_tokens": [{"id": 2, "content": "</s>", "special": true}]})");
  write(folder / "tokenizer_config.json", R"({"eos_token": {"content": "</s>"}})");
  const Package package = llama_sample({});
  const auto said = [&](const std::string& config) {
    write(folder / "config.json", config);
    return all_of(lint(package, folder / ""));
  };
  EXPECT_NE(
      said(R"({"eos_token_id": 50256})").find("eos_token_id 50256, and tokenizer.json has the ids 0 to 2"),
      std::string::npos);
  EXPECT_NE(said(R"({"eos_token_id": 1})").find("eos_token_id 1, and the eos_token '</s>'"),
            std::string::npos);
  EXPECT_EQ(said(R"({"eos_token_id": [1, 2], "bos_token_id": 0})").find("special-ids"), std::string::npos);
}

}  // namespace
}  // namespace kvtide::coreml
