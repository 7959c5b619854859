#include "eval/plan.h"

#include <gtest/gtest.h>

#include <map>

#include "eval/known_models.h"
#include "tests/engine/logits.h"
#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

// The attention of a 7B model (32 query and 8 KV heads of 128) in two layers of a narrow model.
testing::SampleModel wide_attention() {
  testing::SampleModel out;
  out.heads = 32;
  out.kv_heads = 8;
  out.head_dim = 128;
  out.context = 8192;
  return out;
}
constexpr ModelShape kSameShape{"test", 2, 32, 8, 128, 64, 128, 64, 8192};

SessionOptions options(std::int64_t budget, std::int64_t tokens, const HeadTable& heads) {
  SessionOptions o;
  o.threads = 2;
  o.procedural.emplace();
  o.procedural->budget = budget;
  o.procedural->budget_for = tokens;
  o.procedural->heads = heads;
  return o;
}

TEST(Plan, TellsTheBytesAndPicksOfARealSession_WithoutTheModel) {
  constexpr std::int64_t kEightBits = std::int64_t{8} << 20;  // hold 1,000 tokens of all heads
  const testing::TemporaryFile file = testing::sample_file(wide_attention());
  const Model model(file.path());
  const ModelConfig config = config_of(kSameShape);
  const HeadTable heads = assumed_heads(config, 3);
  for (const std::int64_t budget : {std::int64_t{0}, kEightBits, std::int64_t{24} << 20})
    for (const std::int64_t tokens : {1000, 20000}) {
      const MemoryPlan plan = plan_memory(config, options(budget, 0, heads), tokens);
      const Session session(model, options(budget, tokens, heads));
      const ProceduralBytes stated = *session.procedural_plan();
      EXPECT_EQ(plan.bytes.window, stated.window);
      EXPECT_EQ(plan.bytes.rings, stated.rings);
      EXPECT_EQ(plan.bytes.references, stated.references);
      EXPECT_EQ(plan.bytes.compact, stated.compact);
      EXPECT_EQ(plan.bytes.full, stated.full);
      EXPECT_EQ(plan.options.procedural->window, session.options().procedural->window);
      EXPECT_EQ(plan.options.procedural->full_rows, session.options().procedural->full_rows);
      if (budget > 0) {
        EXPECT_LE(plan.bytes.total(), budget);
      }
      const bool every_row = tokens == 1000 && budget == kEightBits;
      EXPECT_EQ(plan.full_heads, every_row ? 16 : 3);
      EXPECT_EQ(plan.plain_heads, every_row ? 0 : 13);
      EXPECT_EQ(plan.full_cache, tokens * 2 * 8 * 128 * 2 * 2);
    }
}

TEST(Plan, IsWhatASessionThenHoldsAtMost) {
  const testing::TemporaryFile file = testing::sample_file(wide_attention());
  const Model model(file.path());
  const ModelConfig config = config_of(kSameShape);
  const HeadTable heads = assumed_heads(config, 3);
  const MemoryPlan plan = plan_memory(config, options(std::int64_t{8} << 20, 0, heads), 1500);
  Session session(model, options(std::int64_t{8} << 20, 1500, heads));
  session.read(testing::random_tokens(1500, 64, 3));
  const std::int64_t peak = session.procedural_counts()->bytes_peak;
  EXPECT_LE(peak, plan.bytes.total());
  EXPECT_GE(peak, plan.bytes.total() / 2);
}

TEST(Plan, SlidingWindowLayersOfAKnownShape_KeepTheirWindow) {
  const auto gemma = std::find_if(known_shapes().begin(), known_shapes().end(),
                                  [](const ModelShape& s) { return s.name == "gemma-3-4b"; });
  ASSERT_NE(gemma, known_shapes().end());
  const ModelConfig config = config_of(*gemma);
  // 34 layers, every sixth of which sees everything: 5 of them, with 4 KV heads of 256 in f16.
  const MemoryPlan plan = plan_memory(config, options(0, 0, assumed_heads(config, 2)), 100000);
  EXPECT_EQ(plan.full_cache, (5 * std::int64_t{100000} + 29 * 1024) * 4 * 256 * 2 * 2);
  EXPECT_EQ(plan.full_heads, 2);
  EXPECT_EQ(plan.plain_heads, 5 * 4 - 2);
  EXPECT_GE(plan.bytes.rings, std::int64_t{29} * 1024 * 4 * 256 * 2 * 2);
}

TEST(Plan, MatrixElements_AreThoseOfTheModelsCard) {
  for (const ModelShape& shape : known_shapes()) {
    const double elements = matrix_elements(config_of(shape));
    if (shape.name == "mistral-7b") {
      EXPECT_NEAR(elements, 7.11e9, 0.02e9);
    }  // 7.25 B with the embedding
    if (shape.name == "llama-3.1-8b") {
      EXPECT_NEAR(elements, 7.50e9, 0.02e9);
    }  // 8.03 B with the embedding
    if (shape.name == "smollm2-135m") {
      EXPECT_NEAR(elements, 134.5e6, 0.1e6);
    }  // the embedding is the output matrix
  }
}

// Elements as the models' cards tell them, in thousands of millions: all, and those of a token.
TEST(KnownModels, HaveAsManyElementsAsTheirCardsSay) {
  const std::map<std::string_view, std::pair<double, double>> cards = {
      {"qwen3-0.6b", {0.6, 0.6}},
      {"qwen3-30b-a3b", {30.5, 3.0}},
      {"qwen3-next-80b-a3b", {79.7, 3.6}},
      {"qwen3.5-0.8b", {0.75, 0.75}},
      {"qwen3.5-2b", {1.88, 1.88}},
      {"qwen3.5-4b", {4.2, 4.2}},
      {"lfm2-350m", {0.354, 0.354}},
      {"lfm2-1.2b", {1.17, 1.17}},
      {"gpt-oss-20b", {20.9, 3.6}},
      {"gpt-oss-120b", {116.8, 5.1}},
      {"deepseek-v3", {671.0, 37.0}},
      {"smollm3-3b", {3.08, 3.08}},
      {"gemma-4-31b", {30.7, 30.7}},
      {"gemma-4-26b-a4b", {25.2, 3.8}},
      // Of 5.1 and 8.0 the encoders of images and sound are 0.45.
      {"gemma-4-e2b", {4.65, 2.3}},
      {"gemma-4-e4b", {7.55, 4.5}}};
  for (const KnownModel& known : known_models()) {
    const ModelConfig config = config_of(known);
    const auto card = cards.find(known.name);
    ASSERT_NE(card, cards.end()) << known.name;
    EXPECT_NEAR(stored_elements(config) / 1e9, card->second.first, 0.02 * card->second.first) << known.name;
    EXPECT_NEAR(matrix_elements(config) / 1e9, card->second.second, 0.1 * card->second.second) << known.name;
    const MemoryPlan plan = plan_memory(config, options(0, 0, assumed_heads(config, 1)), 100000);
    EXPECT_GT(plan.full_cache, plan.bytes.total()) << known.name;
  }
}

const KnownModel& known(std::string_view name) {
  const auto models = known_models();
  return *std::find_if(models.begin(), models.end(), [&](const KnownModel& m) { return m.name == name; });
}

TEST(KnownModels, LayersOfTwoSizesOfHeadsAreCountedEachByItsOwn) {
  // Of 60 layers every sixth sees everything with 4 KV heads of 512; the others see 1,024 tokens with 16 of 256.
  const ModelConfig large = config_of(known("gemma-4-31b"));
  EXPECT_EQ(plan_memory(large, options(0, 0, assumed_heads(large, 1)), 100000).full_cache,
            (std::int64_t{10} * 100000 * 4 * 512 + std::int64_t{50} * 1024 * 16 * 256) * 2 * 2);
  // Of 35 layers the last 20 have no rows; of the others 3 see everything.
  const ModelConfig small = config_of(known("gemma-4-e2b"));
  EXPECT_EQ(plan_memory(small, options(0, 0, assumed_heads(small, 1)), 100000).full_cache,
            (std::int64_t{3} * 100000 * 512 + std::int64_t{12} * 512 * 256) * 2 * 2);
}

TEST(Plan, LayersThatShareRowsLookAtThem) {
  ModelConfig config = config_of(ModelShape{"test", 4, 4, 2, 32, 128, 256, 1000, 4096});
  MemoryPlan plan;
  plan.options.procedural.emplace();
  plan.options.procedural->window = 64;
  plan.options.procedural->block = 32;
  plan.options.procedural->rows = 8;
  plan.options.procedural->summaries = 4;
  plan.options.procedural->levels = 0;
  plan.options.context = 4096;
  plan.options.prefill_chunk = 512;
  plan.bytes = {.window = 128000, .rings = 0, .references = 0, .compact = 0, .full = 0};
  MachineLimits limits;
  limits.read_gb_s = 1.0;
  limits.f32_gflop_s = 1e-6;  // attention is all that counts
  limits.int8_gop_s = 1e9;
  const double own = predict(config, plan, limits, 0.0).read_tok_s;
  config.layers[2].rows_of = config.layers[3].rows_of = 1;
  EXPECT_NEAR(predict(config, plan, limits, 0.0).read_tok_s, own / 2, own * 1e-6);
}

TEST(Plan, PredictedRates_FollowTheFormula) {
  ModelShape shape{"test", 1, 4, 2, 32, 128, 256, 1000, 4096};
  const ModelConfig config = config_of(shape);
  MemoryPlan plan;
  plan.options.procedural.emplace();
  plan.options.procedural->window = 64;
  plan.options.procedural->block = 32;
  plan.options.procedural->rows = 8;
  plan.options.procedural->summaries = 4;
  plan.options.procedural->levels = 0;
  // 10 exact rows of 32 x 2 x 2 = 128 bytes, 20 old ones of 34 x 2 = 68; references are not read.
  plan.bytes = {.window = 1280, .rings = 0, .references = 999, .compact = 680, .full = 680};
  plan.full_cache = 5000;
  plan.options.context = 4096;
  plan.options.prefill_chunk = 512;
  MachineLimits limits;
  limits.read_gb_s = 1.0;
  limits.f32_gflop_s = 2.0;
  limits.int8_gop_s = 4.0;
  const PredictedRates rates = predict(config, plan, limits, 7360.0);
  EXPECT_DOUBLE_EQ(rates.write_tok_s, 1e9 / (7360.0 + 2640.0));
  EXPECT_DOUBLE_EQ(rates.full_write_tok_s, 1e9 / (7360.0 + 5000.0));
  // Matrices: 128 x 32 x (4 + 2 + 2 + 4) + 3 x 128 x 256 elements.
  const double products = 2.0 * (128.0 * 32 * 12 + 3.0 * 128 * 256), attention = 4.0 * 32 * 2 * 30;
  EXPECT_NEAR(rates.read_tok_s, 1.0 / (products / 4e9 + attention / 2e9), 1.0);
}

TEST(Plan, Refusals_SayWhatWouldBeRight) {
  ModelShape shape = kSameShape;
  shape.kv_heads = 5;
  testing::expect_refused(ErrorCode::invalid_argument, "32 query heads cannot share 5 KV heads",
                          [&] { config_of(shape); });
  shape.kv_heads = 0;
  testing::expect_refused(ErrorCode::invalid_argument, "at least one layer and one head",
                          [&] { config_of(shape); });
  const ModelConfig config = config_of(kSameShape);
  testing::expect_refused(ErrorCode::invalid_argument, "too small",
                          [&] { plan_memory(config, options(1 << 20, 0, {}), 20000); });
  testing::expect_refused(ErrorCode::invalid_argument, "no procedural memory",
                          [&] { plan_memory(config, SessionOptions{}, 20000); });
}

}  // namespace
}  // namespace kvtide
