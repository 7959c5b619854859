// Folders of shards under test: no false alarm for any architecture, f16 and 8-bit; and shards that changed
// places are found.
#include <gtest/gtest.h>

#include <fstream>

#include "kvtide/validate.h"
#include "tests/engine/npy.h"
#include "tests/shards/shard_samples.h"
#include "validate/plain_weights.h"

namespace kvtide {
namespace {

using testing::ShardSample;

std::vector<std::string> all_models() {
  std::vector<std::string> out;
  for (const std::string& model : testing::golden_models()) out.push_back(model + ".gguf");
  for (const char* name : {"gemma3-f32", "gpt2-f32", "gpt2-long-f16", "llama-f32", "mistral-f16-shards",
                           "qwen2-bf16", "qwen3-i8", "zaya-f16", "zaya-i8"})
    out.push_back(std::string(KVTIDE_GOLDENS "/folders/") + name);
  return out;
}

std::vector<TokenId> text() {
  auto ids = testing::read_npy<std::int32_t>(KVTIDE_GOLDENS "/models/tiny.ids.npy", "<i4");
  ids.resize(27);
  return ids;
}

ShardExport with_type(ShardExport::Type type) {
  ShardExport how = ShardSample::small();
  how.type = type;
  how.min_elements = 1;
  how.head_shards = 3;
  return how;
}

TEST(ValidateShards, EveryArchitecturePasses_AgainstTheWeightsOfItsShards) {
  for (const std::string& path : all_models())
    for (const auto type : {ShardExport::Type::f16, ShardExport::Type::int8}) {
      const ShardSample shards(path, with_type(type));
      const auto tested = tested_shards(shards.path(), {.threads = 1});
      const auto reference = plain_shard_reference(shards.path(), 1);
      const ValidationReport report =
          validate(*tested, *reference, text(), usual_shard_gates(shards.path(), false));
      EXPECT_TRUE(report.passed) << report_text(report);
      EXPECT_EQ(report.gate, 0.9999);
      // Lengths beyond t_max are not asked for; what is left gives the same bits.
      ASSERT_EQ(report.schedules.size(), 6u);
      for (const ScheduleResult& schedule : report.schedules) {
        EXPECT_GE(schedule.isolated.tokens, 26);  // a tail is always there
        if (&schedule != &report.schedules.front()) {
          EXPECT_TRUE(schedule.same_bits) << path << " " << schedule.name;
        }
      }
    }
}

TEST(ValidateShards, EightBitShardsPassTheirGateAgainstTheOriginal) {
  for (const char* name : {"llama-f32", "qwen2-bf16", "zaya-f16"}) {
    const std::string path = std::string(KVTIDE_GOLDENS "/folders/") + name;
    const ShardSample shards(path, with_type(ShardExport::Type::int8));
    const Model model(path);
    const auto tested = tested_shards(shards.path(), {.threads = 1});
    const auto reference = plain_reference(model, 1);
    const ValidateOptions gates = usual_shard_gates(shards.path(), true);
    EXPECT_EQ(gates.gate, 0.97);
    const ValidationReport report = validate(*tested, *reference, text(), gates);
    EXPECT_TRUE(report.passed) << report_text(report);
  }
}

TEST(ValidateShards, ShardsThatChangedPlacesAreFound) {
  const std::string path = KVTIDE_GOLDENS "/folders/llama-f32";
  const ShardSample shards(path);
  const std::string file = shards.path() + "/manifest.json";
  std::string manifest;
  {
    std::ifstream in(file);
    manifest.assign(std::istreambuf_iterator<char>(in), {});
  }
  // The mlp shards of both layers exchange their layers: a sound folder, of another model.
  const auto relabel = [&](const char* shard, const char* from, const char* to) {
    const std::size_t at = manifest.find(from, manifest.find(shard));
    ASSERT_NE(at, manifest.npos);
    manifest.replace(at, std::string(from).size(), to);
  };
  relabel("\"mlp.0\"", "\"layer\": 0", "\"layer\": 1");
  relabel("\"mlp.1\"", "\"layer\": 1", "\"layer\": 0");
  std::ofstream(file) << manifest;
  const Model model(path);
  const auto tested = tested_shards(shards.path(), {.threads = 1});
  const auto reference = plain_reference(model, 1);
  const ValidationReport report =
      validate(*tested, *reference, text(), usual_shard_gates(shards.path(), true));
  EXPECT_FALSE(report.passed);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].layer, 0);
  EXPECT_EQ(report.findings[0].token, 0);
  EXPECT_LT(report.findings[0].cosine, 0.9);
}

TEST(ValidateShards, WhatDoesNotFitTheSlotsIsRefused_AndTheStatesStayTogether) {
  const ShardSample shards(KVTIDE_GOLDENS "/folders/zaya-f16");  // 96 slots
  const auto tested = tested_shards(shards.path(), {.threads = 1});
  const auto state = tested->make_state(1000), fresh = tested->make_state(1000);
  const std::vector<TokenId> four = {5, 6, 7, 8}, two = {9, 10};
  for (int call = 0; call < 23; ++call) tested->read(*state, four, {});
  tested->read(*state, two, {});
  EXPECT_EQ(tested->rows(*state, 1).rows, 94);
  EXPECT_THROW(tested->read(*state, four, {}), Error);
  const std::vector<TokenId> bad = {9, 64};
  EXPECT_THROW(tested->read(*state, bad, {}), Error);
  EXPECT_EQ(tested->rows(*state, 0).rows, 94);
  EXPECT_EQ(tested->rows(*state, 1).rows, 94);
  for (int call = 0; call < 23; ++call) tested->read(*fresh, four, {});
  tested->read(*fresh, two, {});
  EXPECT_EQ(tested->read(*state, two, {}).logits, tested->read(*fresh, two, {}).logits);
}

}  // namespace
}  // namespace kvtide
