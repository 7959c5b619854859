#include "eval/limits.h"

#include <gtest/gtest.h>

#include <string>

namespace kvtide {
namespace {

// 2 layers of width 32: 4 query and 4 KV heads of 8, feed-forward of 32; 64 tokens, an output matrix of its
// own; f32.
const std::string kTiny = KVTIDE_GOLDENS "/models/llama-mha-untied.gguf";

constexpr double kLayer = 7 * 32 * 32;  // parameters of a layer's seven matrices
constexpr double kHead = 64 * 32;
constexpr double kKvRow =
    2 * 4 * 8 * 2;  // bytes of a position of a layer: keys and values of 4 heads of 8 in f16

SessionOptions options(std::int64_t chunk) {
  SessionOptions o;
  o.threads = 1;
  o.prefill_chunk = chunk;
  return o;
}

TEST(Limits, WorkOfOneToken_CountsEveryMatrixAndEveryRowThatItSees) {
  const Model model(kTiny);
  const PassWork work = work_of_pass(model, options(512), 10, 1, 1);
  EXPECT_EQ(work.matmul.operations, 2 * 2 * kLayer);
  EXPECT_EQ(work.head.operations, 2 * kHead);
  // In each layer four heads of eight elements meet eleven keys and eleven values.
  EXPECT_EQ(work.attention.operations, 2 * 4 * 8 * 11 * 2 * 2);
  EXPECT_EQ(work.bytes(), 4 * (2 * kLayer + kHead) + 2 * 11 * kKvRow);
}

TEST(Limits, WorkOfReading_LeavesOutWhatOnlyLogitsNeed) {
  const Model model(kTiny);
  // One pass of five tokens: in the last layer four of them need no more than query, key and value.
  const PassWork work = work_of_reading(model, options(512), 0, 5);
  const double qkv = 3 * 32 * 32, rest = kLayer - qkv;
  EXPECT_EQ(work.matmul.operations, 2 * (5 * kLayer + 5 * qkv + rest));
  EXPECT_EQ(work.head.operations, 2 * kHead);
  EXPECT_EQ(work.bytes(), 4 * (2 * kLayer + kHead) + 2 * 5 * kKvRow);
}

TEST(Limits, WorkOfReadingInChunks_ReadsTheWeightsOncePerChunk) {
  const Model model(kTiny);
  const double qkv = 3 * 32 * 32;
  // The first pass has no logits, so its last layer stops behind query, key and value and attends to nothing.
  const PassWork first = work_of_pass(model, options(4), 0, 4, 0);
  EXPECT_EQ(first.bytes(), 4 * (kLayer + qkv) + 4 * kKvRow);
  const PassWork both = work_of_reading(model, options(4), 0, 8);
  EXPECT_EQ(both.bytes(), first.bytes() + 4 * (2 * kLayer + kHead) + 2 * 8 * kKvRow);
}

TEST(Limits, WorkOfOneToken_GrowsWithDepthInGlobalLayersOnly) {
  const Model model(KVTIDE_GOLDENS "/models/gemma3-window.gguf");
  const auto bytes = [&](Pos depth) { return work_of_pass(model, options(512), depth, 1, 1).bytes(); };
  const double every_layer = bytes(1) - bytes(0), global_layers = bytes(2001) - bytes(2000);
  // Every sixth layer sees everything.
  EXPECT_EQ(global_layers * model.layers(), every_layer * (model.layers() / 6));
}

TEST(Limits, WorkOfOneTokenOfExperts_CountsOneOfThem_AndTheConvolutions) {
  const Model model(KVTIDE_GOLDENS "/folders/zaya-f16");
  // Width 32, 4 + 2 heads of 8, four experts of 16, a router of 8 with five slots; two layers, 64 tokens.
  const double attention = (32 + 16 + 8 + 8 + 32) * 32, convolution = 48 * 8 * 2;
  const double router = 8 * 32 + 2 * 8 * 8 + 5 * 8, expert = 3 * 16 * 32;
  const PassWork work = work_of_pass(model, options(512), 0, 1, 1);
  EXPECT_EQ(work.matmul.operations, 2 * 2 * (attention + convolution + router + expert));
  EXPECT_EQ(work.head.operations, 2 * kHead);
}

TEST(Limits, MeasuredLimits_ArePositiveAndFaster_WithWiderRegisters) {
  SessionOptions plain = options(512);
  plain.kernels = "scalar";
  const MachineLimits scalar = measure_limits(plain);
  EXPECT_GT(scalar.read_gb_s, 0.1);
  EXPECT_GT(scalar.f32_gflop_s, 0.01);
  EXPECT_GT(scalar.int8_gop_s, 0.01);
  if (best_kernels().isa == std::string("scalar")) GTEST_SKIP() << "this processor has plain kernels only";
  const MachineLimits best = measure_limits(options(512));
  EXPECT_GT(best.f32_gflop_s, scalar.f32_gflop_s);
  EXPECT_GT(best.int8_gop_s, scalar.int8_gop_s);
}

TEST(Limits, LimitsOfAPass_AreThoseOfTheProductsThatRun) {
  const Model model(kTiny);
  const MachineLimits limits{.read_gb_s = 1.0, .f32_gflop_s = 2.0, .bf16_gflop_s = 4.0, .int8_gop_s = 8.0};
  // Weights of f32 never run on 8-bit products; attention multiplies bf16 unless everything is exact.
  const PassLimits usual = pass_limits(limits, model, options(512));
  EXPECT_EQ(usual.products, 2.0);
  EXPECT_EQ(usual.attention, 4.0);
  SessionOptions exact = options(512);
  exact.exact = true;
  EXPECT_EQ(pass_limits(limits, model, exact).attention, 2.0);
}

TEST(Limits, LeastSeconds_AreThoseOfTheSlowerOfArithmeticAndMemory_PartByPart) {
  const PassLimits limits{.products = 10.0, .attention = 5.0, .read_gb_s = 2.0};
  PassWork work;
  work.matmul = {.operations = 40e9, .bytes = 2e9};    // four seconds of arithmetic, one of memory
  work.attention = {.operations = 5e9, .bytes = 6e9};  // one and three
  EXPECT_DOUBLE_EQ(least_seconds(work, limits), 7.0);
}

TEST(Limits, BestOfBoth_TakesEveryLimitFromTheBetterMeasurement) {
  const MachineLimits a{.read_gb_s = 1.0, .f32_gflop_s = 9.0, .bf16_gflop_s = 2.0, .int8_gop_s = 5.0};
  const MachineLimits b{.read_gb_s = 3.0, .f32_gflop_s = 8.0, .bf16_gflop_s = 4.0, .int8_gop_s = 5.0};
  const MachineLimits best = best_of_both(a, b);
  EXPECT_EQ(best.read_gb_s, 3.0);
  EXPECT_EQ(best.f32_gflop_s, 9.0);
  EXPECT_EQ(best.bf16_gflop_s, 4.0);
}

}  // namespace
}  // namespace kvtide
