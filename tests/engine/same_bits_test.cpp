// One arithmetic (docs/architecture.md, idea 4): what must not change a bit of any logit.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "kernels/kernels.h"
#include "kvtide/session.h"
#include "tests/engine/logits.h"
#include "tests/engine/npy.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::all_logits;
using testing::same_bits;
using testing::SampleModel;

struct Setting {
  std::int64_t chunk;
  int threads;
};
// Every chunk with every thread count once: 65536 stands for the whole text at once.
constexpr std::int64_t kChunks[] = {1, 2, 7, 16, 64, 65536};
constexpr int kThreads[] = {1, 2, 3, 4, 8};

std::vector<Setting> all_settings() {
  std::vector<Setting> out;
  for (const std::int64_t chunk : kChunks)
    for (const int threads : kThreads) out.push_back({chunk, threads});
  return out;
}

// Each chunk and each thread count at least once.
std::vector<Setting> some_settings() {
  return {{1, 2}, {2, 8}, {7, 1}, {16, 3}, {64, 4}, {65536, 2}, {65536, 1}};
}

void expect_same_logits(const Model& model, SessionOptions options, std::span<const TokenId> tokens,
                        const std::vector<Setting>& settings, const std::string& what) {
  std::vector<float> wanted;
  for (const Setting& setting : settings) {
    options.prefill_chunk = setting.chunk;
    options.threads = setting.threads;
    const auto got = all_logits(model, options, tokens);
    if (wanted.empty()) {
      wanted = got;
      for (const float logit : wanted) ASSERT_TRUE(std::isfinite(logit)) << what;
    }
    ASSERT_TRUE(same_bits(got, wanted))
        << what << " chunk " << setting.chunk << " threads " << setting.threads;
  }
}

TEST(SameBits, ForEveryChunkAndThreadCount_WithQuantisedWeightsInBothModes) {
  SampleModel sample{.width = 256, .hidden = 256, .head_dim = 64};
  sample.types = {DType::q4_1, DType::q8_0, DType::q4_k, DType::q6_k, DType::q5_0, DType::q4_0};
  const auto file = testing::sample_file(sample);
  const Model model(file.path());
  const auto tokens = testing::random_tokens(150, model.vocabulary(), 1);
  for (const bool exact : {false, true})
    for (const ElementType kv : {ElementType::f16, ElementType::f32}) {
      SessionOptions options;
      options.exact = exact;
      options.key_type = options.value_type = kv;
      options.context = 256;
      expect_same_logits(model, options, tokens, kv == ElementType::f16 ? all_settings() : some_settings(),
                         exact ? "exact" : "default");
    }
}

TEST(SameBits, ForEveryChunkAndThreadCount_ForTypesWithoutPanels) {
  SampleModel sample{.layers = 1, .width = 256, .hidden = 256, .head_dim = 64};
  sample.types = {DType::f16,  DType::q5_k, DType::iq4_nl, DType::bf16,
                  DType::q3_k, DType::q5_1, DType::q2_k,   DType::f32};
  const auto file = testing::sample_file(sample);
  const Model model(file.path());
  for (const bool exact : {false, true}) {
    SessionOptions options;
    options.exact = exact;
    options.context = 128;
    expect_same_logits(model, options, testing::random_tokens(100, model.vocabulary(), 2), some_settings(),
                       exact ? "exact" : "default");
  }
}

TEST(SameBits, ForEveryChunk_WhenWindowsAreCrossedAndRingsTurnManyTimes) {
  for (const std::uint32_t window : {1u, 20u, 64u, 100u}) {
    SampleModel sample{.architecture = "gemma3", .layers = 7, .hidden = 64, .kv_heads = 1};
    sample.window = window;
    sample.types = {DType::q8_0, DType::q4_1};
    const auto file = testing::sample_file(sample);
    const Model model(file.path());
    SessionOptions options;
    options.context = 1000;
    expect_same_logits(model, options, testing::random_tokens(600, model.vocabulary(), window),
                       {{65536, 2}, {1, 1}, {7, 2}, {64, 3}, {200, 2}}, "window " + std::to_string(window));
  }
}

TEST(SameBits, ForEveryContextSize_WhetherTheWindowIsARingOrNot) {
  SampleModel sample{.architecture = "gemma3", .layers = 6, .hidden = 64};
  sample.window = 30;
  const auto file = testing::sample_file(sample);
  const Model model(file.path());
  const auto tokens = testing::random_tokens(300, model.vocabulary(), 3);
  std::vector<float> wanted;
  for (const std::int64_t context : {300, 301, 1000, 4096}) {
    SessionOptions options;
    options.context = context;
    options.prefill_chunk = 16;  // a ring of 64 rows
    const auto got = all_logits(model, options, tokens);
    if (wanted.empty()) {
      options.prefill_chunk = 300;  // 330 rows and more: no ring in 300 tokens
      wanted = all_logits(model, options, tokens);
    }
    EXPECT_TRUE(same_bits(got, wanted)) << context;
  }
}

TEST(SameBits, ForEveryKernelTable) {
  SampleModel sample{.width = 256, .hidden = 256, .head_dim = 40};
  sample.types = {DType::q4_1, DType::q8_0, DType::q4_k, DType::q6_k, DType::q5_0, DType::q4_0, DType::q5_k};
  for (const char* architecture : {"llama", "gemma3", "qwen2", "qwen3"}) {
    sample.architecture = architecture;
    sample.window = sample.architecture == "gemma3" ? std::optional<std::uint32_t>(20) : std::nullopt;
    const auto file = testing::sample_file(sample);
    const Model model(file.path());
    for (const bool exact : {false, true}) {
      std::vector<float> wanted;
      for (const Kernels* kernels : available_kernels()) {
        SessionOptions options;
        options.exact = exact;
        options.kernels = kernels->isa;
        options.context = 128;
        const auto got = all_logits(model, options, testing::random_tokens(90, model.vocabulary(), 4));
        if (wanted.empty()) wanted = got;
        EXPECT_TRUE(same_bits(got, wanted)) << architecture << " " << kernels->isa << " exact " << exact;
      }
    }
  }
}

TEST(SameBits, ForThePairsOfChunkAndThreads_OnEveryGoldenModel) {
  const auto ids = testing::read_npy<TokenId>(KVTIDE_GOLDENS "/models/tiny.ids.npy", "<i4");
  for (const std::string& path : testing::golden_models()) {
    const Model model(path + ".gguf");
    expect_same_logits(model, {}, ids, some_settings(), path);
  }
}

TEST(SameBits, WhicheverRowsOfLogitsAreAskedFor) {
  SampleModel sample;
  sample.types = {DType::q8_0};
  const auto file = testing::sample_file(sample);
  const Model model(file.path());
  const auto tokens = testing::random_tokens(70, model.vocabulary(), 5);
  SessionOptions options;
  options.prefill_chunk = 32;
  const auto wanted = all_logits(model, options, tokens);
  for (const Pos from : {1, 31, 32, 33, 50, 69}) {
    Session session(model, options);
    std::vector<float> got;
    Pos next = from;
    ReadOptions read;
    read.logits_from = from;
    read.on_logits = [&](Pos pos, std::span<const float> row) {
      EXPECT_EQ(pos, next++);
      got.insert(got.end(), row.begin(), row.end());
    };
    session.read(tokens, read);
    EXPECT_EQ(next, 70);
    EXPECT_TRUE(same_bits(got, std::span(wanted).subspan(static_cast<std::size_t>(from) * 64))) << from;
    EXPECT_TRUE(same_bits(session.logits(), std::span(wanted).subspan(69 * 64))) << from;
  }
}

}  // namespace
}  // namespace kvtide
