// Folders whose files are missing, lie or contradict each other: each is refused with a message that names
// the file and what is wrong; nothing crashes, and no lie makes the program take much memory.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>

#include "kvtide/error.h"
#include "kvtide/model.h"
#include "model/checkpoint.h"
#include "tests/formats/temporary_folder.h"
#include "tests/hostile/allocation_meter.h"

namespace kvtide {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// A copy of a golden folder, to be damaged.
class Copy {
 public:
  explicit Copy(const std::string& name) : path_(folder_.path(name)) {
    fs::copy(fs::path(KVTIDE_GOLDENS "/folders") / name, path_, fs::copy_options::recursive);
  }
  std::string path() const { return path_.string(); }
  void drop(const std::string& file) { fs::remove(path_ / file); }
  void put(const std::string& file, const std::string& text) { write(path_ / file, text); }
  std::string get(const std::string& file) const { return text_of(path_ / file); }
  // Replaces the first `from` of a file. A test that aims beside is a broken test.
  void edit(const std::string& file, const std::string& from, const std::string& to) {
    std::string text = get(file);
    const std::size_t at = text.find(from);
    if (at == text.npos) throw std::logic_error(file + " holds no " + from);
    put(file, text.replace(at, from.size(), to));
  }
  // The same in the header of a file of tensors, whose length is kept by spaces.
  void edit_header(const std::string& file, const std::string& from, std::string to) {
    to.resize(std::max(to.size(), from.size()), ' ');
    std::string text = get(file);
    const std::size_t at = text.find(from);
    if (at == text.npos) throw std::logic_error(file + " holds no " + from);
    text.replace(at, from.size(), to);
    std::uint64_t length = 0;
    std::memcpy(&length, text.data(), sizeof length);
    length += to.size() - from.size();
    std::memcpy(text.data(), &length, sizeof length);
    put(file, text);
  }

 private:
  testing::TemporaryFolder folder_;
  fs::path path_;
};

struct Damage {
  const char* what;
  const char* folder;
  std::function<void(Copy&)> make;
  ErrorCode code;
  const char* says;
};

const char* const kConfig = "config.json";
const char* const kTokenizer = "tokenizer.json";
const char* const kWeights = "model.safetensors";
const char* const kIndex = "model.safetensors.index.json";
constexpr auto kBad = ErrorCode::bad_format;
constexpr auto kNew = ErrorCode::unsupported;

auto edit(const char* file, const char* from, const char* to) {
  return [=](Copy& copy) { copy.edit(file, from, to); };
}
auto drop(const char* file) {
  return [=](Copy& copy) { copy.drop(file); };
}
auto put(const char* file, const std::string& text) {
  return [=](Copy& copy) { copy.put(file, text); };
}

std::vector<Damage> damages() {
  return {
      {"no config", "llama-f32", drop(kConfig), kBad, "is a directory without config.json"},
      {"no tokenizer", "llama-f32", drop(kTokenizer), ErrorCode::not_found, "there is no tokenizer.json"},
      {"no weights", "llama-f32", drop(kWeights), ErrorCode::not_found, "neither model.safetensors nor"},
      {"a shard that is missing", "mistral-f16-shards", drop("model-00002-of-00003.safetensors"),
       ErrorCode::not_found, "model-00002-of-00003.safetensors"},
      {"an empty config", "llama-f32", put(kConfig, ""), kBad, "config.json: the file is empty"},
      {"a config that is a list", "llama-f32", put(kConfig, "[]"), kBad, "it must be an object"},
      {"a config of brackets", "llama-f32", put(kConfig, std::string(100000, '[')), kBad, "levels deep"},
      {"a config with a name twice", "llama-f32", edit(kConfig, "{", "{\"vocab_size\": 64, "), kBad,
       "stands twice"},
      {"an unknown model", "llama-f32", edit(kConfig, "\"llama\"", "\"mamba\""), kNew,
       "model_type 'mamba' is not supported; kvtide runs: llama"},
      {"a model type that is a number", "llama-f32", edit(kConfig, "\"llama\"", "7"), kBad,
       "'model_type' is 7"},
      {"a negative width", "llama-f32", edit(kConfig, "\"hidden_size\": 32", "\"hidden_size\": -32"), kBad,
       "'hidden_size' is -32; it must be a whole number between 1 and"},
      {"a broken width", "llama-f32", edit(kConfig, "\"hidden_size\": 32", "\"hidden_size\": 32.5"), kBad,
       "'hidden_size' is 32.5"},
      {"a huge width", "llama-f32", edit(kConfig, "\"hidden_size\": 32", "\"hidden_size\": 1000000000000"),
       kBad, "'hidden_size' is"},
      {"another width", "llama-f32", edit(kConfig, "\"hidden_size\": 32", "\"hidden_size\": 64"), kBad,
       "'model.embed_tokens.weight' has shape [64, 32]; the model's metadata asks for [64, 64]"},
      {"more layers", "llama-f32", edit(kConfig, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
       kBad, "'model.layers.2.input_layernorm.weight' is missing"},
      {"heads that do not share", "llama-f32",
       edit(kConfig, "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"), kBad,
       "cannot share 3 KV heads"},
      {"no heads", "llama-f32", edit(kConfig, "\"num_attention_heads\": 4", "\"num_attention_heads\": 0"),
       kBad, "'num_attention_heads' is 0"},
      {"a larger vocabulary", "llama-f32", edit(kConfig, "\"vocab_size\": 64", "\"vocab_size\": 16777216"),
       kBad, "'vocab_size' is 16777216, but tensor 'model.embed_tokens.weight' has 64 rows"},
      {"a head of its own that is missing", "llama-f32",
       edit(kConfig, "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false"), kBad,
       "'lm_head.weight' is missing"},
      {"an unknown rotation", "llama-f32", edit(kConfig, "\"llama3\"", "\"dynamic\""), kNew,
       "rope scaling 'dynamic' is not supported"},
      {"a rotation without its lists", "llama-f32", edit(kConfig, "\"llama3\"", "\"longrope\""), kBad,
       "'rope_parameters.short_factor' is missing"},
      {"a rotation without its numbers", "llama-f32", edit(kConfig, "\"low_freq_factor\"", "\"low\""), kBad,
       "'rope_parameters.low_freq_factor' is missing"},
      {"another state of Mamba-2", "granite-hybrid-f32",
       edit(kConfig, "\"mamba_d_state\": 12", "\"mamba_d_state\": 13"), kBad,
       "'model.layers.0.mamba.in_proj.weight' has shape [180, 32]; the model's metadata asks for [184, 32]"},
      {"a recurrence without a decay", "mamba2-f32",
       [](Copy& copy) { copy.edit_header(kWeights, "0.mixer.A_log", "0.mixer.A_lag"); }, kBad,
       "'backbone.layers.0.mixer.A_log' is missing"},
      {"groups that do not divide heads", "mamba2-f32", edit(kConfig, "\"n_groups\": 2", "\"n_groups\": 3"),
       kBad, "4 heads of Mamba-2 cannot share 3 groups"},
      {"fewer layers that share rows", "gemma4-f32",
       edit(kConfig, "\"num_kv_shared_layers\": 2", "\"num_kv_shared_layers\": 1"), kBad,
       "'model.layers.3.self_attn.k_norm.weight' is missing"},
      {"wider numbers for every layer", "gemma4-f32",
       edit(kConfig, "\"hidden_size_per_layer_input\": 6", "\"hidden_size_per_layer_input\": 7"), kBad,
       "'model.embed_tokens_per_layer.weight' has shape [64, 30]; the model's metadata asks for [64, 35]"},
      {"more experts beside", "gemma4-f32", edit(kConfig, "\"num_experts\": 3", "\"num_experts\": 4"), kBad,
       "asks for [4"},
      {"another activation", "llama-f32", edit(kConfig, "\"silu\"", "\"relu\""), kNew,
       "'hidden_act' must be silu"},
      {"layer types for other layers", "gemma3-f32", edit(kConfig, "\"full_attention\",", ""), kBad,
       "'layer_types' has 2 entries for 3 layers"},
      {"an unknown layer type", "gemma3-f32", edit(kConfig, "\"full_attention\",", "\"linear_attention\","),
       kNew, "layer 1 is of the type 'linear_attention'"},
      {"softcapping", "gemma3-f32",
       edit(kConfig, "\"final_logit_softcapping\": null", "\"final_logit_softcapping\": 30.0"), kNew,
       "'final_logit_softcapping' is not supported"},
      {"more positions than were learned", "gpt2-f32",
       edit(kConfig, "\"n_positions\": 256", "\"n_positions\": 512"), kBad,
       "'transformer.wpe.weight' has shape [256, 32]; the model's metadata asks for [512, 32]"},
      {"heads that do not divide the width", "gpt2-f32", edit(kConfig, "\"n_head\": 4", "\"n_head\": 5"),
       kBad, "which 5 heads do not divide"},
      {"a wider feed-forward", "gpt2-f32", edit(kConfig, "\"n_inner\": 48", "\"n_inner\": null"), kBad,
       "'transformer.h.0.mlp.c_fc.weight' has shape [32, 48]; the model's metadata asks for [32, 128]"},

      {"weights that are cut off", "llama-f32",
       [](Copy& copy) { copy.put(kWeights, copy.get(kWeights).substr(0, 30000)); }, kBad,
       "model.safetensors: "},
      {"weights of another type", "llama-f32",
       [](Copy& copy) { copy.edit_header(kWeights, "\"dtype\":\"F32\"", "\"dtype\":\"I32\""); }, kNew,
       "the types that are read: F32 F16 BF16"},
      {"integers without scales", "qwen3-i8",
       [](Copy& copy) { copy.edit_header(kWeights, "q_proj.weight_scale", "q_proj.weight_skale"); }, kBad,
       "there is no tensor 'model.layers.0.self_attn.q_proj.weight_scale'"},
      {"an infinite weight", "llama-f32",
       [](Copy& copy) {
         std::string text = copy.get(kWeights);
         const float infinite = std::numeric_limits<float>::infinity();
         std::memcpy(text.data() + text.size() - 4, &infinite, 4);
         copy.put(kWeights, text);
       },
       ErrorCode::numeric, "NaN or infinity"},

      {"a shard outside the folder", "mistral-f16-shards",
       edit(kIndex, "\"model-00001-of-00003.safetensors\"", "\"../model-00001-of-00003.safetensors\""), kBad,
       "a shard is a bare name"},
      {"a hidden shard", "mistral-f16-shards",
       edit(kIndex, "\"model-00001-of-00003.safetensors\"", "\".safetensors\""), kBad,
       "a shard is a bare name"},
      {"an index that lies", "mistral-f16-shards",
       edit(kIndex, "\"model-00001-of-00003.safetensors\"", "\"model-00002-of-00003.safetensors\""), kBad,
       "but it is not there"},
      {"an index of nothing", "mistral-f16-shards", put(kIndex, R"({"weight_map":{}})"), kBad,
       "'weight_map'"},
      {"a tensor in two shards", "mistral-f16-shards",
       [](Copy& copy) {
         copy.put("model-00002-of-00003.safetensors", copy.get("model-00001-of-00003.safetensors"));
       },
       kBad, "lies in both"},

      {"a tokenizer without a model", "llama-f32", put(kTokenizer, "{}"), kBad, "the key 'model' is missing"},
      {"another model", "llama-f32", edit(kTokenizer, "\"type\":\"BPE\"", "\"type\":\"Unigram\""), kNew,
       "the model 'Unigram' is not supported; kvtide knows BPE"},
      {"another pre-tokeniser", "llama-f32",
       edit(kTokenizer, "\"pre_tokenizer\":{\"type\":\"ByteLevel\"",
            "\"pre_tokenizer\":{\"type\":\"UnicodeScripts\""),
       kNew, "the pre_tokenizer 'UnicodeScripts' is not supported"},
      {"another normaliser", "llama-f32",
       edit(kTokenizer, "\"normalizer\":null", "\"normalizer\":{\"type\":\"BertNormalizer\"}"), kNew,
       "the normalizer 'BertNormalizer' is not supported"},
      {"another post-processor", "llama-f32",
       edit(kTokenizer, "\"post_processor\":null", "\"post_processor\":{\"type\":\"RobertaProcessing\"}"),
       kNew, "the post_processor 'RobertaProcessing' is not supported"},
      {"a regular expression that does not compile", "llama-f32",
       edit(kTokenizer, "\"pre_tokenizer\":{\"type\":\"ByteLevel\"",
            "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},\"behavior\":\"Isolated\""),
       kNew, "the regular expression '(a' cannot be used"},
      {"an id beyond the model", "llama-f32", edit(kTokenizer, "\"a\":4", "\"a\":64"), kBad,
       "token 'a' has the id 64; ids go from 0 to 63"},
      {"a negative id", "llama-f32", edit(kTokenizer, "\"a\":4", "\"a\":-4"), kBad,
       "token 'a' has the id -4"},
      {"an id twice", "llama-f32", edit(kTokenizer, "\"a\":4", "\"a\":5"), kBad, "have the same id 5"},
      {"a marker that is another token", "llama-f32",
       edit(kTokenizer, "\"id\":0,\"content\":\"<unk>\"", "\"id\":5,\"content\":\"<unk>\""), kBad,
       "the added token '<unk>' has the id 5, but 'model.vocab' gives it the id 0"},
      {"a merge of nothing", "llama-f32", edit(kTokenizer, "\"merges\":[[", "\"merges\":[\"a\",["), kBad,
       "merge 0 'a' has to be two tokens"},
      {"a merge of strangers", "llama-f32", edit(kTokenizer, "\"merges\":[[", "\"merges\":[\"q z\",["), kBad,
       "needs the token 'qz'"},
      {"a chat template that is no JSON", "llama-f32", put("tokenizer_config.json", "{"), kBad,
       "tokenizer_config.json: is not valid JSON"},
  };
}

TEST(HostileFolder, IsRefusedWithItsFileAndItsFault) {
  for (const Damage& damage : damages()) {
    SCOPED_TRACE(damage.what);
    Copy copy(damage.folder);
    damage.make(copy);
    try {
      const Model model(copy.path(), {.threads = 1});
      ADD_FAILURE() << "accepted, instead of saying: " << damage.says;
    } catch (const Error& error) {
      EXPECT_STREQ(error_code_name(error.code()), error_code_name(damage.code)) << error.message();
      EXPECT_NE(error.message().find(damage.says), std::string::npos)
          << error.message() << "\nshould say: " << damage.says;
    }
  }
}

TEST(HostileFolder, MutantsOfEveryFileLoadOrAreRefused) {
  std::mt19937 random(7);
  int loaded = 0, refused = 0;
  for (const char* name : {"llama-f32", "mistral-f16-shards", "qwen3-i8", "gpt2-f32"}) {
    Copy copy(name);
    for (const auto& entry : fs::directory_iterator(copy.path())) {
      const std::string file = entry.path().filename().string();
      if (file.ends_with(".npy")) continue;
      const std::string good = copy.get(file);
      // The weights themselves are numbers, of which nearly all are fine: what is damaged is what describes.
      const std::size_t reach =
          std::min<std::size_t>(good.size(), file.ends_with(".safetensors") ? 3000 : good.size());
      for (int round = 0; round < 60; ++round) {
        std::string text = good;
        for (int change = 0; change <= round % 3; ++change) {
          const std::size_t at = random() % std::min(reach, text.size());
          switch (random() % 4) {
            case 0:
              text[at] = static_cast<char>(random());
              break;
            case 1:
              text.erase(at, 1 + random() % 9);
              break;
            case 2:
              text.insert(at, text.substr(random() % std::min(reach, text.size()), 1 + random() % 12));
              break;
            default:
              text[at] = "0123456789-.e[]{}\",:"[random() % 20];
          }
        }
        copy.put(file, text);
        try {
          const Model model(copy.path(), {.threads = 1});
          model.tokenizer().encode("the tide <s> came in");
          ++loaded;
        } catch (const Error& error) {
          EXPECT_FALSE(error.message().empty());
          ++refused;
        }
      }
      copy.put(file, good);
    }
  }
  EXPECT_GT(loaded, 50) << "nearly no mutant came past the first check";
  EXPECT_GT(refused, 300) << "nearly no mutant was one";
}

TEST(HostileFolder, TakesLittleMemoryForLargeLies) {
  Copy copy("gpt2-f32");
  copy.edit(kConfig, "\"vocab_size\": 64", "\"vocab_size\": 16777216");
  copy.edit(kTokenizer, "\"a\":4", "\"a\":16777215");
  testing::AllocationMeter meter;
  EXPECT_THROW(Model(copy.path(), {.threads = 1}), Error);
  EXPECT_THROW(open_tokenizer(copy.path()), Error);
  EXPECT_LT(meter.peak(), std::size_t{64} << 20);
}

TEST(HostileFolder, ARegularExpressionWithoutEndIsAnErrorOfTheText) {
  Copy copy("llama-f32");
  copy.edit(kTokenizer, "\"pre_tokenizer\":{\"type\":\"ByteLevel\"",
            "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
            "\"Regex\":"
            "\"(a|aa)+$\"},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\"");
  copy.edit(kTokenizer, "\"use_regex\":true}", "\"use_regex\":true}]}");
  const Model model(copy.path(), {.threads = 1});
  EXPECT_EQ(model.tokenizer().encode("aa b").size(), 4u);
  try {
    model.tokenizer().encode(std::string(200, 'a') + "b");
    ADD_FAILURE() << "an expression that needs 2^100 steps came to an end";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(error.message().find("cannot be followed through this text"), std::string::npos)
        << error.message();
  }
}

}  // namespace
}  // namespace kvtide
