// folders_test.cpp: checkpoints in the layout of Hugging Face against `transformers`: every tiny folder,
// every position, every kernel table.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/mapped_file.h"
#include "formats/safetensors.h"
#include "kernels/kernels.h"
#include "kvtide/error.h"
#include "kvtide/session.h"
#include "tests/engine/logits.h"
#include "tests/engine/npy.h"
#include "tests/formats/temporary_folder.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

std::vector<std::string> folders() {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(KVTIDE_GOLDENS "/folders"))
    if (entry.is_directory()) out.push_back(entry.path().string());
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<TokenId> golden_ids() {
  return testing::read_npy<TokenId>(KVTIDE_GOLDENS "/models/tiny.ids.npy", "<i4");
}

SessionOptions exact_options() {
  SessionOptions options;
  options.exact = true;
  options.key_type = options.value_type = ElementType::f32;
  return options;
}

double furthest(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return worst;
}

TEST(Folders, ABudgetHoldsWhatLayersCarryBesideRows) {
  const std::vector<TokenId> ids = golden_ids();
  std::vector<TokenId> text;
  for (int i = 0; i < 40; ++i) text.insert(text.end(), ids.begin(), ids.end());
  for (const char* name :
       {"lfm2-f32", "qwen3-5-f32", "qwen3-next-f32", "granite-hybrid-f32", "nemotron-h-f32"}) {
    const Model model(std::string(KVTIDE_GOLDENS "/folders/") + name);
    SessionOptions options;
    options.context = 4000;
    options.procedural.emplace().budget = 300 << 10;
    Session session(model, options);
    session.read(text);
    EXPECT_GT(session.procedural_plan()->carried, 0) << name;
    EXPECT_LE(session.procedural_counts()->bytes_peak, session.procedural_plan()->total()) << name;
    EXPECT_LE(session.procedural_plan()->total(), 300 << 10) << name;
  }
}

TEST(Folders, CoverEveryArchitectureAndElementType) {
  std::set<std::string> seen;
  for (const std::string& path : folders()) seen.insert(Model(path).architecture());
  EXPECT_EQ(seen, (std::set<std::string>{"llama",     "qwen2",     "qwen3",     "gemma3", "gpt2",
                                         "zaya",      "smollm3",   "mistral3",  "phi3",   "olmo2",
                                         "qwen3moe",  "lfm2",      "lfm2moe",   "qwen35", "qwen35moe",
                                         "qwen3next", "gpt-oss",   "deepseek2", "mamba2", "granitehybrid",
                                         "gemma4",    "nemotron_h"}));
  EXPECT_TRUE(
      std::filesystem::exists(KVTIDE_GOLDENS "/folders/mistral-f16-shards/model.safetensors.index.json"));
}

TEST(Folders, LogitsOfEveryPositionAreThoseOfTheReference) {
  const auto ids = golden_ids();
  ASSERT_EQ(ids.size(), 80u);
  for (const std::string& path : folders()) {
    const Model model(path);
    const auto wanted = testing::read_npy<float>(path + "/logits.npy", "<f4");
    ASSERT_EQ(wanted.size(), ids.size() * static_cast<std::size_t>(model.vocabulary()));
    for (const Kernels* kernels : available_kernels()) {
      SessionOptions options = exact_options();
      options.kernels = kernels->isa;
      const auto got = testing::all_logits(model, options, ids);
      ASSERT_EQ(got.size(), wanted.size()) << path;
      EXPECT_LE(furthest(got, wanted), 2e-4) << path << " " << kernels->isa;
    }
  }
}

TEST(Folders, LogitsAreTheSameBitsInAnyChunksAndThreads) {
  const auto ids = golden_ids();
  for (const std::string& path : folders()) {
    const Model model(path);
    const auto wanted = testing::all_logits(model, exact_options(), ids);
    for (const std::int64_t chunk : {1, 7}) {
      SessionOptions options = exact_options();
      options.prefill_chunk = chunk;
      options.threads = chunk == 1 ? 1 : 3;
      EXPECT_EQ(testing::all_logits(model, options, ids), wanted) << path << " in chunks of " << chunk;
    }
  }
}

TEST(Folders, EightBitActivationsStayClose) {
  const auto ids = golden_ids();
  const std::string path = KVTIDE_GOLDENS "/folders/qwen3-i8";
  const Model model(path);
  const auto wanted = testing::read_npy<float>(path + "/logits.npy", "<f4");
  SessionOptions options = exact_options();
  options.exact = false;
  const auto got = testing::all_logits(model, options, ids);
  EXPECT_LT(furthest(got, wanted), 0.6);
  EXPECT_NE(got, wanted);
}

TEST(Folders, TheTextOfTheGoldensIsItsIds) {
  std::ifstream file(KVTIDE_GOLDENS "/models/tiny.txt");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  for (const std::string& path : folders())
    EXPECT_EQ(Model(path).tokenizer().encode(text), golden_ids()) << path;
}

// Checkpoints of the bare model, or of one with images, call the same tensors by longer or shorter names.
TEST(Folders, TensorsUnderOtherPrefixesAreTheSameModel) {
  const struct {
    const char *folder, *from, *to;
    bool wrapped;
  } cases[] = {{"gpt2-f32", "\"transformer.", "\"", false},
               {"gemma3-f32", "\"model.", "\"language_model.model.", true},
               {"gemma3-f32", "\"model.", "\"model.language_model.", true}};
  namespace fs = std::filesystem;
  for (const auto& names : cases) {
    const testing::TemporaryFolder scratch;
    const std::string source = std::string(KVTIDE_GOLDENS "/folders/") + names.folder,
                      copy = scratch.path("copy");
    fs::copy(source, copy, fs::copy_options::recursive);
    const auto text_of = [](const std::string& path) {
      std::ifstream file(path, std::ios::binary);
      return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    };
    const std::string weights = text_of(source + "/model.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, weights.data(), sizeof length);
    const std::uint64_t old_length = length;
    std::string header = weights.substr(8, old_length);
    int renamed = 0;
    for (std::size_t at = 0; (at = header.find(names.from, at)) != header.npos;
         at += std::strlen(names.to), ++renamed)
      header.replace(at, std::strlen(names.from), names.to);
    ASSERT_GT(renamed, 20);
    length = header.size();
    std::ofstream(copy + "/model.safetensors", std::ios::binary)
        << std::string(reinterpret_cast<const char*>(&length), sizeof length) << header
        << weights.substr(8 + old_length);
    if (names.wrapped)
      std::ofstream(copy + "/config.json")
          << R"({"model_type":"gemma3","text_config":)" << text_of(source + "/config.json") << "}";
    EXPECT_EQ(testing::all_logits(Model(copy), exact_options(), golden_ids()),
              testing::all_logits(Model(source), exact_options(), golden_ids()))
        << names.folder << " as " << names.to;
  }
}

// Exported under the names and keys of llama.cpp's files, rotated pairs side by side where these have them so.
TEST(Folders, AGgufFileBesideAFolderGivesTheSameBits) {
  int found = 0;
  for (const std::string& path : folders()) {
    if (!std::filesystem::exists(path + "/model.gguf")) continue;
    ++found;
    EXPECT_EQ(testing::all_logits(Model(path + "/model.gguf"), exact_options(), golden_ids()),
              testing::all_logits(Model(path), exact_options(), golden_ids()))
        << path;
  }
  EXPECT_GE(found, 13);
}

// GGUF keeps matrices as outputs times inputs, under names of its own.
TEST(Folders, AGpt2OfAGgufFileGivesTheLogitsOfTheFolder) {
  const MappedFile file(KVTIDE_GOLDENS "/folders/gpt2-f32/model.safetensors");
  const SafeTensors tensors = SafeTensors::parse(file.bytes(), "gpt2-f32");
  testing::ModelSketch sketch;
  sketch.set("general.architecture", std::string("gpt2"))
      .set("gpt2.context_length", std::uint32_t{256})
      .set("gpt2.embedding_length", std::uint32_t{32})
      .set("gpt2.feed_forward_length", std::uint32_t{48})
      .set("gpt2.block_count", std::uint32_t{2})
      .set("gpt2.attention.head_count", std::uint32_t{4})
      .set("gpt2.attention.layer_norm_epsilon", 1e-5f)
      .set("tokenizer.ggml.model", std::string("gpt2"))
      .set("tokenizer.ggml.pre", std::string("gpt2-small-japanese-char"))
      .set_strings("tokenizer.ggml.tokens", testing::sample_tokens());
  const std::pair<const char*, const char*> names[] = {
      {"wte", "token_embd"},       {"wpe", "position_embd"},
      {"ln_f", "output_norm"},     {"h.", "blk."},
      {"ln_1", "attn_norm"},       {"ln_2", "ffn_norm"},
      {"attn.c_attn", "attn_qkv"}, {"attn.c_proj", "attn_output"},
      {"mlp.c_fc", "ffn_up"},      {"mlp.c_proj", "ffn_down"}};
  for (const auto& [name, tensor] : tensors.tensors) {
    std::string renamed = name.substr(std::strlen("transformer."));
    for (const auto& [from, to] : names)
      if (const std::size_t at = renamed.find(from); at != renamed.npos)
        renamed.replace(at, std::strlen(from), to);
    std::vector<float> values(tensor.bytes.size() / sizeof(float));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    std::vector<std::uint64_t> shape(tensor.shape.rbegin(), tensor.shape.rend());
    if (name.find(".c_") != name.npos && name.ends_with(".weight")) {
      const auto inputs = static_cast<std::size_t>(tensor.shape[0]),
                 outputs = static_cast<std::size_t>(tensor.shape[1]);
      std::vector<float> turned(values.size());
      for (std::size_t i = 0; i < inputs; ++i)
        for (std::size_t o = 0; o < outputs; ++o) turned[o * inputs + i] = values[i * outputs + o];
      values = turned;
      shape = {inputs, outputs};
    }
    sketch.set_floats(renamed, shape, values);
  }
  const testing::TemporaryFile gguf("gpt2.gguf", sketch.build().bytes);
  const auto wanted = testing::read_npy<float>(KVTIDE_GOLDENS "/folders/gpt2-f32/logits.npy", "<f4");
  const auto got = testing::all_logits(Model(gguf.path()), exact_options(), golden_ids());
  ASSERT_EQ(got.size(), wanted.size());
  EXPECT_LE(furthest(got, wanted), 2e-4);
}

TEST(Folders, AListOfEndsThatAgreesNamesTheEndOfATurnAsWell) {
  const testing::TemporaryFolder scratch;
  const std::string copy = scratch.path("copy");
  std::filesystem::copy(KVTIDE_GOLDENS "/folders/gpt2-f32", copy, std::filesystem::copy_options::recursive);
  std::ifstream file(copy + "/config.json");
  std::string config((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string one = "\"eos_token_id\": 2";
  config.replace(config.find(one), one.size(), "\"eos_token_id\": [2, 3]");
  std::ofstream(copy + "/config.json", std::ios::trunc) << config;
  const Model model(copy);
  EXPECT_EQ(model.tokenizer().eos(), 2);
  EXPECT_TRUE(model.tokenizer().ends_text(2));
  EXPECT_TRUE(model.tokenizer().ends_text(3));
  EXPECT_FALSE(model.tokenizer().ends_text(0));
  EXPECT_TRUE(model.notes().empty());
  EXPECT_FALSE(Model(KVTIDE_GOLDENS "/folders/gpt2-f32").tokenizer().ends_text(3));
}

TEST(Folders, APathMayEndWithASlash) {
  const Model model(KVTIDE_GOLDENS "/folders/llama-f32/");
  EXPECT_EQ(model.name(), "llama-f32");
  EXPECT_TRUE(model.notes().empty());
}

TEST(Folders, AModelOfSeveralFilesHasOneIdentity) {
  const Model whole(KVTIDE_GOLDENS "/folders/llama-f32"),
      shards(KVTIDE_GOLDENS "/folders/mistral-f16-shards");
  EXPECT_EQ(whole.identity().at("model").size(), 64u);
  EXPECT_EQ(shards.identity(), Model(KVTIDE_GOLDENS "/folders/mistral-f16-shards").identity());
  EXPECT_NE(whole.identity().at("model"), shards.identity().at("model"));
  EXPECT_EQ(whole.identity().at("tokenizer"), shards.identity().at("tokenizer"));
}

}  // namespace
}  // namespace kvtide
