// Folders of shards that are damaged: every rule of the manifest, every file, and random damage. Each is
// refused before the first token, with the shard and what would be right, or changes nothing that matters.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/checksum.h"
#include "formats/safetensors_writer.h"
#include "tests/model/expect_refused.h"
#include "tests/shards/shard_samples.h"

namespace kvtide {
namespace {

namespace fs = std::filesystem;
using testing::expect_refused;

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// Opens everything that a run opens.
void open_all(const std::string& path) {
  const ShardFolder folder(path, {.threads = 1});
  for (const ShardInfo& shard : folder.shards()) folder.open(shard.name);
}

class HostileShards : public ::testing::Test {
 protected:
  HostileShards()
      : HostileShards(
            std::make_unique<testing::ShardSample>(testing::SampleModel{.head_dim = 16}, split_how())) {}
  explicit HostileShards(std::unique_ptr<testing::ShardSample> sample)
      : sample_(std::move(sample)), manifest_(read(path("manifest.json"))) {}
  static ShardExport split_how() {
    ShardExport how = testing::ShardSample::small();
    how.head_shards = 2;
    how.type = ShardExport::Type::int8;
    return how;
  }
  std::string path(const std::string& file) const { return sample_->path() + "/" + file; }

  // The manifest with the first `from` behind `after` replaced.
  std::string with(const std::string& after, const std::string& from, const std::string& to) const {
    std::string text = manifest_;
    const std::size_t start = text.find(after), at = text.find(from, start);
    EXPECT_NE(start, text.npos) << after;
    EXPECT_NE(at, text.npos) << from;
    return text.replace(at, from.size(), to);
  }
  void refused(ErrorCode code, const std::string& says, const std::string& manifest) const {
    write(path("manifest.json"), manifest);
    expect_refused(code, says, [&] { open_all(sample_->path()); });
    write(path("manifest.json"), manifest_);
  }
  // Without the shard of that name.
  std::string without(const std::string& shard) const {
    const std::size_t name = manifest_.find("\"name\": \"" + shard + "\"");
    EXPECT_NE(name, manifest_.npos);
    const std::size_t begin = manifest_.rfind("    {\n", name);
    std::size_t end = manifest_.find("\n    {\n", name);
    std::string text = manifest_;
    if (end != text.npos) return text.erase(begin, end + 1 - begin);
    end = manifest_.find("\n    }\n", name) + 7;
    return text.erase(begin - 2, end - (begin - 2) - 1);  // with the comma before it
  }

  std::unique_ptr<testing::ShardSample> sample_;
  std::string manifest_;
};

TEST_F(HostileShards, TheSoundFolderIsOpened) { open_all(sample_->path()); }

TEST_F(HostileShards, EveryRuleOfTheManifestIsChecked) {
  const auto bad = [&](const std::string& says, const std::string& manifest) {
    refused(ErrorCode::bad_format, says, manifest);
  };
  const auto cannot = [&](const std::string& says, const std::string& manifest) {
    refused(ErrorCode::unsupported, says, manifest);
  };
  bad("is not valid JSON", manifest_.substr(0, manifest_.size() / 2));
  bad("'format' must be", with("", "kvtide-shards", "other"));
  cannot("'version' is 2; version 1 is read", with("", "\"version\": 1", "\"version\": 2"));
  bad("'d_model' is 0", with("", "\"d_model\": 64", "\"d_model\": 0"));
  bad("the key 'heads' is missing", with("", "\"heads\"", "\"hats\""));
  bad("4 query heads cannot share 3 KV heads", with("", "\"kv_heads\": 2", "\"kv_heads\": 3"));
  cannot("'norm' is 'softmax'; known: rms, layer", with("", "\"norm\": \"rms\"", "\"norm\": \"softmax\""));
  cannot("'activation' is 'relu'", with("", "\"silu\"", "\"relu\""));
  bad("'t_max' is 5", with("", "\"t_max\": 4", "\"t_max\": 5"));
  bad("'slots' is 0", with("", "\"slots\": 96", "\"slots\": 0"));
  bad("'bos' is 64", with("", "\"bos\": 0", "\"bos\": 64"));
  bad("'eos' must be a list of token ids", with("", "\"eos\": [1]", "\"eos\": [64]"));
  bad("'rope_dims' is 15", with("", "\"rope_dims\": 16", "\"rope_dims\": 15"));
  bad("a rope has 8 frequencies; 'rope_dims' 14 asks for 7",
      with("", "\"rope_dims\": 16", "\"rope_dims\": 14"));
  bad("'ropes[].frequencies' must hold numbers", with("", "\"frequencies\": [1.0", "\"frequencies\": [-1.0"));
  bad("shard 'attention.0' wants rope 1 of 1", with("attention.0", "\"rope\": 0", "\"rope\": 1"));
  bad("'shard attention.0: window' is 0", with("attention.0", "\"window\": null", "\"window\": 0"));
  cannot("'tokenizer.kind' is 'words'", with("\"tokenizer\"", "\"gguf\"", "\"words\""));

  bad("layer 1 of 2 has no attention shard", without("attention.1"));
  bad("layer 0 of 2 has no mlp shard", without("mlp.0"));
  bad("there is no embedding shard", without("embedding"));
  bad("two shards are called 'attention.0'", with("attention.1", "attention.1", "attention.0"));
  bad("both are the attention shard of layer 0", with("\"attention.1\"", "\"layer\": 1", "\"layer\": 0"));
  bad("'shard attention.1: layer' is 2; it must be a whole number between 0 and 1",
      with("\"attention.1\"", "\"layer\": 1", "\"layer\": 2"));
  cannot("shard 'mlp.0' is of the kind 'ssm'; the kinds that run are embedding, attention, mlp, moe and head",
         with("\"mlp.0\"", "\"kind\": \"mlp\"", "\"kind\": \"ssm\""));
  bad("shard 'mlp.0' holds 1 experts; the model has 0",
      with("\"mlp.0\"", "\"kind\": \"mlp\"", "\"kind\": \"moe\""));
  cannot("has 'mla' attention; this version runs gqa", with("attention.1", "\"gqa\"", "\"mla\""));
  bad("shard 'attention.1' has 'cca' attention; the model has no 'convolved' queries and keys",
      with("attention.1", "\"gqa\"", "\"cca\""));
  cannot("shard 'mlp.0' holds 16 experts and would need a router",
         with("\"mlp.0\"", "\"experts\": 1", "\"experts\": 16"));

  bad("the heads end at token 32 of a vocabulary of 64", without("head.1"));
  bad("head shard 'head.1' holds the tokens 33 to 64, but no head holds the tokens 32 to 33",
      with("\"head.1\"", "\"vocab_start\": 32", "\"vocab_start\": 33"));
  bad("the tokens 31 to 32 are in another head, too",
      with("\"head.1\"", "\"vocab_start\": 32", "\"vocab_start\": 31"));
  bad("which are none", with("\"head.0\"", "\"vocab_end\": 32", "\"vocab_end\": 0"));
  bad("the heads end at token 63", with("\"head.1\"", "\"vocab_end\": 64", "\"vocab_end\": 63"));

  bad("tensor 'query.weight' has shape [64, 65]; the model's numbers ask for [64, 64]",
      with("\"query.weight\"", "[64, 64]", "[64, 65]"));
  bad("tensor 'query.weight' has dtype 'I32'; it must be F16, I8 or F32",
      with("\"query.weight\"", "I8", "I32"));
  bad("tensor 'norm.weight' has dtype 'I8'; it must be F32 or F16", with("\"norm.weight\"", "F32", "I8"));
  bad("tensor 'query.weight_scale' is 'F32' [63]; it must be F32 [1] or [64]",
      with("\"query.weight_scale\"", "[64]", "[63]"));
  bad("tensor 'query.weight' is I8, but 'query.weight_scale' is missing",
      with("", "\"query.weight_scale\"", "\"query.weight_scales\""));
  bad("tensor 'value.weight' is missing", with("", "\"value.weight\"", "\"valve.weight\""));
  bad("tensor 'extra' is none that this kind of shard has",
      with("attention.0", "\"tensors\": {",
           "\"tensors\": {\"extra\": {\"dtype\": \"F16\", \"shape\": [1]},"));
  bad("shards 'attention.0' and 'mlp.0' share the file",
      with("\"mlp.0\"", "mlp.0.safetensors", "attention.0.safetensors"));
  bad("it must be the bare name of a file",
      with("attention.0", "\"attention.0.safetensors", "\"../attention.0.safetensors"));
  bad("it must be the bare name of a file",
      with("attention.0", "\"attention.0.safetensors", "\"/attention.0.safetensors"));
  bad("must lie in tokenizer/", with("\"tokenizer\"", "tokenizer/vocabulary.gguf", "vocabulary.gguf"));
  bad("it must be 8 hexadecimal digits", with("attention.0", "\"crc32c\": \"", "\"crc32c\": \"x"));
  bad("its checksum is not the manifest's",
      with("attention.0", "\"crc32c\": \"", "\"crc32c\": \"00000000\", \"was\": \""));
  bad("the manifest says 12345", with("attention.0", "\"bytes\": ", "\"bytes\": 12345, \"was\": "));
}

// Convolved queries and keys, routed experts, a scaled residual stream.
class HostileHybridShards : public HostileShards {
 protected:
  HostileHybridShards()
      : HostileShards(
            std::make_unique<testing::ShardSample>(KVTIDE_GOLDENS "/folders/zaya-f16", split_how())) {}
};

TEST_F(HostileHybridShards, EveryRuleOfTheManifestIsChecked) {
  open_all(sample_->path());
  const auto bad = [&](const std::string& says, const std::string& manifest) {
    refused(ErrorCode::bad_format, says, manifest);
  };
  const auto cannot = [&](const std::string& says, const std::string& manifest) {
    refused(ErrorCode::unsupported, says, manifest);
  };
  bad("'experts' is 0", with("", "\"experts\": 4", "\"experts\": 0"));
  bad("'router_width' is 0", with("", "\"router_width\": 8", "\"router_width\": 0"));
  bad("'skip_slot' is missing", with("", "\"skip_slot\"", "\"skipped_slot\""));
  cannot("'skip_slot' is 'half'; known: identity, zero", with("", "\"zero\"", "\"half\""));
  cannot("'experts' are gated by silu", with("", "\"silu\"", "\"gelu\""));
  cannot("'scaled_residual' and 'post_norms' exclude each other",
         with("", "\"post_norms\": false", "\"post_norms\": true"));
  bad("shard 'moe.0' holds 4 experts; the model has 3", with("", "\"experts\": 4", "\"experts\": 3"));
  bad("shard 'moe.1' holds 5 experts; the model has 4",
      with("\"moe.1\"", "\"experts\": 4", "\"experts\": 5"));
  bad("shard 'moe.0' is of the kind mlp; a model with 'experts' has moe shards", [&] {
    std::string text = with("\"moe.0\"", "\"kind\": \"moe\"", "\"kind\": \"mlp\"");
    const std::size_t count = text.find("\"experts\": 4", text.find("\"moe.0\""));
    return text.replace(count, 12, "\"experts\": 1");
  }());
  bad("layer 1 of 2 has no moe shard", without("moe.1"));
  bad("both are the moe shard of layer 0", with("\"moe.1\"", "\"layer\": 1", "\"layer\": 0"));
  bad("shard 'attention.0' has 'gqa' attention; the model has 'convolved' queries and keys, which are cca",
      with("attention.0", "\"cca\"", "\"gqa\""));
  bad("shard 'attention.0' has 'cca' attention; the model has no 'convolved'",
      with("", "\"convolved\": true", "\"convolved\": false"));
  bad("tensor 'input_offset' is none that this kind of shard has",
      with("", "\"scaled_residual\": true", "\"scaled_residual\": false"));
  bad("tensor 'conv_grouped' has shape [48, 15]; the model's numbers ask for [48, 16]",
      with("\"conv_grouped\"", "[48, 16]", "[48, 15]"));
  bad("tensor 'conv_depthwise' has dtype 'I8'; it must be F32 or F16",
      with("\"conv_depthwise\"", "F32", "I8"));
  bad("tensor 'key_temperature' is missing", with("", "\"key_temperature\"", "\"key_temperatures\""));
  bad("tensor 'value_delayed.weight' has shape [8, 33]",
      with("\"value_delayed.weight\"", "[8, 32]", "[8, 33]"));
  bad("tensor 'router_carry' is missing", with("\"moe.1\"", "\"router_carry\"", "\"router_carrying\""));
  bad("tensor 'router_balance' has shape [4]; the model's numbers ask for [5]",
      with("\"router_balance\"", "[5]", "[4]"));
  bad("tensor 'expert.3.down.weight' is missing",
      with("", "\"expert.3.down.weight\"", "\"expert.4.down.weight\""));
  bad("tensor 'expert.2.gate.weight' has shape [15, 32]",
      with("\"expert.2.gate.weight\"", "[16, 32]", "[15, 32]"));
}

TEST_F(HostileShards, EveryFileIsChecked) {
  const std::string file = path("mlp.1.safetensors"), sound = read(file);
  const auto refused_with = [&](ErrorCode code, const std::string& says, const std::string& contents) {
    write(file, contents);
    expect_refused(code, says, [&] { open_all(sample_->path()); });
    write(file, sound);
  };
  refused_with(ErrorCode::bad_format, "bytes; the manifest says", sound.substr(0, sound.size() - 1));
  refused_with(ErrorCode::bad_format, "bytes; the manifest says", sound + "x");
  for (const std::size_t at : {std::size_t{0}, std::size_t{20}, sound.size() / 2, sound.size() - 1}) {
    std::string flipped = sound;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    refused_with(ErrorCode::bad_format, "mlp.1.safetensors: its checksum is not the manifest's", flipped);
  }
  refused_with(ErrorCode::bad_format, "its checksum is not the manifest's", read(path("mlp.0.safetensors")));
  fs::remove(file);
  expect_refused(ErrorCode::not_found, "mlp.1.safetensors: the manifest lists this file",
                 [&] { open_all(sample_->path()); });
  write(file, sound);

  const std::string vocabulary = path("tokenizer/vocabulary.gguf"), words = read(vocabulary);
  std::string flipped = words;
  flipped[words.size() / 2] = static_cast<char>(flipped[words.size() / 2] ^ 1);
  write(vocabulary, flipped);
  expect_refused(ErrorCode::bad_format, "vocabulary.gguf: its checksum is not the manifest's",
                 [&] { ShardFolder(sample_->path(), {.threads = 1}); });
  write(vocabulary, words);
  fs::remove(path("manifest.json"));
  expect_refused(ErrorCode::not_found, "a folder of shards is made by kvtide shard export",
                 [&] { ShardFolder(sample_->path(), {.threads = 1}); });
}

// A file that fits its checksum, but not what the manifest says of it.
TEST_F(HostileShards, TensorsThatAreNotTheManifestsAreRefused) {
  const auto exchange = [&](const std::string& name, const std::string& dtype,
                            std::vector<std::int64_t> shape, std::vector<std::byte> bytes) {
    SafeTensorsWriter writer;
    writer.add(name, dtype, shape, std::move(bytes));
    PosixFiles files;
    const auto written = writer.save(files, path("head.0.safetensors"));
    char sum[9];
    std::snprintf(sum, sizeof sum, "%08x", written.crc32c);
    std::string text = manifest_;
    const std::size_t shard = text.find("\"head.0\"");
    for (const auto& [key, value] :
         {std::pair<std::string, std::string>{"\"bytes\": ", std::to_string(written.bytes)},
          {"\"crc32c\": ", "\"" + std::string(sum) + "\""}}) {
      const std::size_t at = text.find(key, shard) + key.size();
      text.replace(at, text.find('\n', at) - at - 1, value);
    }
    write(path("manifest.json"), text);
  };
  exchange("norm.weight", "F32", {64}, std::vector<std::byte>(256));
  expect_refused(ErrorCode::bad_format, "head.0.safetensors: tensor 'head.weight' is missing",
                 [&] { open_all(sample_->path()); });
  exchange("head.weight", "F16", {32, 64}, std::vector<std::byte>(4096));
  expect_refused(ErrorCode::bad_format, "is missing", [&] { open_all(sample_->path()); });
}

TEST_F(HostileShards, RandomDamageToTheManifestIsRefusedOrHarmless) {
  std::mt19937 random(7);
  int refusals = 0;
  for (int round = 0; round < 400; ++round) {
    std::string text = manifest_;
    const int edits = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < edits; ++i) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          text.erase(at, 1 + random() % 20);
          break;
        default:
          text.insert(at, "0");
      }
    }
    write(path("manifest.json"), text);
    try {
      open_all(sample_->path());
    } catch (const Error& error) {
      ++refusals;
      EXPECT_NE(error.code(), ErrorCode::out_of_memory) << error.message();
    }
  }
  EXPECT_GT(refusals, 200);
}

}  // namespace
}  // namespace kvtide
