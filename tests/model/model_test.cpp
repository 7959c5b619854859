// Loading: what a Model says of its file, and what it refuses.
#include "kvtide/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/model/expect_refused.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::ModelSketch;
using testing::sample_model;
using testing::TemporaryFile;

void expect_refused(const ModelSketch& sketch, const std::string& says,
                    ErrorCode code = ErrorCode::bad_format) {
  const TemporaryFile file("bad.gguf", sketch.build().bytes);
  for (const bool map : {true, false}) {
    testing::expect_refused(code, says, [&] { Model model(file.path(), {.threads = 2, .map_file = map}); });
    testing::expect_refused(code, file.path() + ": ",
                            [&] { Model model(file.path(), {.threads = 1, .map_file = map}); });
  }
}

TEST(Model, TellsWhatItsFileHolds) {
  const TemporaryFile file("some.gguf", sample_model({.layers = 3}).build().bytes);
  const Model model(file.path());
  EXPECT_EQ(model.path(), file.path());
  EXPECT_EQ(model.name(), "sample");
  EXPECT_EQ(model.architecture(), "llama");
  EXPECT_EQ(model.context_length(), 4096);
  EXPECT_EQ(model.vocabulary(), 64);
  EXPECT_EQ(model.layers(), 3);
  EXPECT_EQ(model.chat_template(), "");
  // Embedding, head and last norm; per layer two norms, q, k, v, output, gate, up, down.
  const std::int64_t layer = 2 * 64 + 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 128;
  EXPECT_EQ(model.parameters(), 2 * 64 * 64 + 64 + 3 * layer);
  EXPECT_EQ(model.tokenizer().size(), 64u);
  EXPECT_GT(model.vocabulary_bytes(), 0);
}

TEST(Model, IsNamedAfterItsFile_WhenTheFileDoesNotSay) {
  const TemporaryFile file("nameless.gguf", sample_model().drop("general.name").build().bytes);
  EXPECT_EQ(Model(file.path()).name(), "nameless.gguf");
}

TEST(Model, StatesTheBytesOfItsWeights) {
  const std::int64_t matrices =
      2 * 64 * 64 + 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 128;  // with one layer
  const TemporaryFile plain("f32.gguf", sample_model({.layers = 1}).build().bytes);
  EXPECT_EQ(Model(plain.path()).weights_bytes(), matrices * 4);
  const TemporaryFile packed("q8_0.gguf", sample_model({.layers = 1, .types = {DType::q8_0}}).build().bytes);
  EXPECT_EQ(Model(packed.path()).weights_bytes(), matrices / 32 * 34);
}

TEST(Model, RefusesATensorThatIsMissing_AndNamesIt) {
  for (const std::string name :
       {"output_norm.weight", "blk.0.attn_norm.weight", "blk.1.ffn_norm.weight", "blk.0.attn_q.weight",
        "blk.1.attn_k.weight", "blk.0.attn_v.weight", "blk.1.attn_output.weight", "blk.0.ffn_gate.weight",
        "blk.0.ffn_up.weight", "blk.1.ffn_down.weight"})
    expect_refused(sample_model().drop_tensor(name), "'" + name + "' is missing");
  for (const std::string architecture : {"gemma3", "qwen3"})
    for (const std::string name : {"blk.0.attn_q_norm.weight", "blk.1.attn_k_norm.weight"}) {
      testing::SampleModel sample{.architecture = architecture};
      sample.window = 8;
      expect_refused(sample_model(sample).drop_tensor(name), "'" + name + "' is missing");
    }
}

TEST(Model, RefusesATensorOfAnotherShape_AndTellsBoth) {
  expect_refused(sample_model().set_tensor("blk.0.attn_q.weight", {64, 63}, DType::f32),
                 "'blk.0.attn_q.weight' has shape [64, 63]; the model's metadata asks for [64, 64]");
  expect_refused(sample_model().set_tensor("blk.1.ffn_down.weight", {64, 128}, DType::f32),
                 "'blk.1.ffn_down.weight' has shape [64, 128]; the model's metadata asks for [128, 64]");
  expect_refused(sample_model().set_tensor("output_norm.weight", {65}, DType::f32),
                 "'output_norm.weight' has shape [65]");
  expect_refused(sample_model().set_tensor("output.weight", {64, 65}, DType::f32),
                 "'output.weight' has shape [64, 65]");
  expect_refused(sample_model().set_tensor("blk.0.attn_v.weight", {64, 32, 2}, DType::f32),
                 "'blk.0.attn_v.weight' has shape [64, 32, 2]");
  expect_refused(sample_model({.architecture = "qwen2"}).set_tensor("blk.0.attn_q.bias", {32}, DType::f32),
                 "'blk.0.attn_q.bias' has shape [32]");
  expect_refused(sample_model().set("llama.embedding_length", std::uint32_t{32}),
                 "the model's metadata asks for [32, 64]");
}

TEST(Model, AcceptsTrailingDimensionsOfOne) {
  const TemporaryFile file("ones.gguf", sample_model()
                                            .set_tensor("blk.0.attn_v.weight", {64, 32, 1, 1}, DType::f32)
                                            .set_tensor("output_norm.weight", {64, 1}, DType::f32)
                                            .build()
                                            .bytes);
  EXPECT_EQ(Model(file.path()).layers(), 2);
}

TEST(Model, RefusesNanAndInfinityInEveryTensor_AndNamesIt) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(),
                  kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {kNan, kInf, -kInf}) {
    std::vector<float> norm(64, 1.0f), matrix(64 * 64, 0.5f);
    norm[63] = bad;
    matrix[64 * 64 - 1] = bad;
    for (const std::string name : {"output_norm.weight", "blk.1.attn_norm.weight"})
      expect_refused(sample_model().set_floats(name, {64}, norm), "'" + name + "' holds NaN or infinity",
                     ErrorCode::numeric);
    for (const std::string name : {"token_embd.weight", "output.weight", "blk.1.attn_output.weight"})
      expect_refused(sample_model().set_floats(name, {64, 64}, matrix),
                     "'" + name + "' holds NaN or infinity", ErrorCode::numeric);
  }
}

TEST(Model, RefusesNanAndInfinityInTheScalesOfBlocks) {
  for (const DType dtype : {DType::q4_1, DType::q8_0, DType::q5_1, DType::iq4_nl})
    for (const std::uint16_t bad : {std::uint16_t{0x7c00}, std::uint16_t{0xfc00}, std::uint16_t{0x7e01}}) {
      auto blocks = testing::random_blocks(dtype, 64 * 64, 1, 0.01f);
      std::memcpy(blocks.data() + blocks.size() - static_cast<std::size_t>(dtype_info(dtype).block_bytes),
                  &bad, 2);
      expect_refused(sample_model().set_tensor("blk.1.attn_output.weight", {64, 64}, dtype, blocks),
                     "'blk.1.attn_output.weight' holds NaN or infinity", ErrorCode::numeric);
    }
}

TEST(Model, RefusesAVocabularyThatDoesNotMatchTheEmbedding) {
  auto tokens = testing::sample_tokens();
  tokens.emplace_back("more");
  expect_refused(
      sample_model().set_strings("tokenizer.ggml.tokens", tokens).drop("tokenizer.ggml.token_type"),
      "the vocabulary has 65 tokens but 'token_embd.weight' has 64 rows");
}

TEST(Model, RefusesAFileThatIsNotThere_OrIsNotAModel) {
  testing::expect_refused(ErrorCode::not_found, "/nowhere/model.gguf",
                          [] { Model model("/nowhere/model.gguf"); });
  const TemporaryFile text("text.gguf", testing::Bytes(100, std::byte{'x'}));
  testing::expect_refused(ErrorCode::bad_format, text.path(), [&] { Model model(text.path()); });
  const TemporaryFile empty("empty.gguf", {});
  testing::expect_refused(ErrorCode::bad_format, empty.path(), [&] { Model model(empty.path()); });
}

TEST(Model, RefusesATruncatedFile_WhereverItEnds) {
  const testing::Bytes whole = sample_model({.layers = 1}).build().bytes;
  for (std::size_t keep = 1; keep < whole.size(); keep += whole.size() / 23) {
    const TemporaryFile file("short.gguf",
                             {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(keep)});
    EXPECT_THROW(Model model(file.path()), Error) << keep << " of " << whole.size() << " bytes";
  }
}

TEST(Model, RefusesANumberOfThreadsThatMakesNoSense) {
  const TemporaryFile file("some.gguf", sample_model().build().bytes);
  for (const int threads : {-1, 257, 1 << 30})
    testing::expect_refused(ErrorCode::invalid_argument, "threads",
                            [&] { Model model(file.path(), {.threads = threads}); });
}

}  // namespace
}  // namespace kvtide
