// What an export writes: types and scales of weights, ranges of heads, a folder that is whole or not there.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/half.h"
#include "base/mapped_file.h"
#include "formats/safetensors.h"
#include "formats/safetensors_files.h"
#include "tests/model/expect_refused.h"
#include "tests/shards/shard_samples.h"

namespace kvtide {
namespace {

using testing::expect_refused;
using testing::ShardSample;

// A matrix [rows][columns] of an exported file as numbers.
std::vector<float> numbers_of(const SafeTensors& tensors, const std::string& name) {
  const SafeTensor& tensor = tensors.tensors.at(name);
  const auto count = static_cast<std::size_t>(tensor.shape[0] * tensor.shape[1]);
  std::vector<float> out(count);
  if (tensor.dtype == "F16") {
    for (std::size_t i = 0; i < count; ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, tensor.bytes.data() + 2 * i, 2);
      out[i] = f16_to_f32(half);
    }
    return out;
  }
  const SafeTensor& scales = tensors.tensors.at(name + "_scale");
  for (std::size_t i = 0; i < count; ++i) {
    float scale = 0.0f;
    const std::size_t row = scales.shape[0] == 1 ? 0 : i / static_cast<std::size_t>(tensor.shape[1]);
    std::memcpy(&scale, scales.bytes.data() + 4 * row, 4);
    out[i] = scale * static_cast<float>(static_cast<std::int8_t>(tensor.bytes[i]));
  }
  return out;
}

class Files {
 public:
  explicit Files(const ShardSample& sample) : sample_(sample) {}
  SafeTensors open(const std::string& shard) {
    files_.emplace_back(sample_.path() + "/" + shard + ".safetensors");
    return SafeTensors::parse(files_.back().bytes(), shard);
  }

 private:
  const ShardSample& sample_;
  std::vector<MappedFile> files_;
};

ShardExport int8(ShardExport::Scales scales) {
  ShardExport how = ShardSample::small();
  how.type = ShardExport::Type::int8;
  how.scales = scales;
  return how;
}

const std::string kFolder = KVTIDE_GOLDENS "/folders/llama-f32";  // its weights are plain f32

TEST(ShardExport, EightBitElementsAreWithinHalfAStepOfTheWeights) {
  const SafeTensorsFiles source(kFolder);
  const auto* weights = source.find("model.layers.1.self_attn.o_proj.weight");
  ASSERT_NE(weights, nullptr);
  std::vector<float> wanted(weights->value.bytes.size() / 4);
  std::memcpy(wanted.data(), weights->value.bytes.data(), weights->value.bytes.size());
  const auto columns = static_cast<std::size_t>(weights->value.shape[1]), rows = wanted.size() / columns;
  float largest = 0.0f;
  for (const float value : wanted) largest = std::max(largest, std::fabs(value));
  for (const auto scales : {ShardExport::Scales::tensor, ShardExport::Scales::channel}) {
    ShardExport how = int8(scales);
    how.min_elements = 1;
    const ShardSample sample(kFolder, how);
    Files files(sample);
    const SafeTensors tensors = files.open("attention.1");
    EXPECT_EQ(tensors.tensors.at("output.weight").dtype, "I8");
    EXPECT_EQ(
        tensors.tensors.at("output.weight_scale").shape,
        (std::vector<std::int64_t>{scales == ShardExport::Scales::tensor ? 1 : weights->value.shape[0]}));
    const std::vector<float> got = numbers_of(tensors, "output.weight");
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t row = 0; row < rows; ++row) {
      float most = 0.0f;
      for (std::size_t k = 0; k < columns; ++k) most = std::max(most, std::fabs(wanted[row * columns + k]));
      const float step = (scales == ShardExport::Scales::tensor ? largest : most) / 127.0f;
      for (std::size_t k = 0; k < columns; ++k)
        ASSERT_LE(std::fabs(got[row * columns + k] - wanted[row * columns + k]), step * 0.5001f);
    }
  }
}

TEST(ShardExport, SmallAndChosenMatricesStayF16) {
  ShardExport how = int8(ShardExport::Scales::channel);
  how.min_elements = 4096;
  how.keep_f16 = {"up", "attention.1/query"};
  const ShardSample sample(testing::SampleModel{.head_dim = 16}, how);
  const auto type = [&](const char* shard, const std::string& tensor) {
    for (const TensorEntry& entry : sample.manifest().find(shard)->tensors)
      if (entry.name == tensor) return entry.dtype;
    return std::string("absent");
  };
  EXPECT_EQ(type("attention.0", "query.weight"), "I8");   // 64 x 64
  EXPECT_EQ(type("attention.1", "query.weight"), "F16");  // named
  EXPECT_EQ(type("attention.0", "key.weight"), "F16");    // 32 x 64
  EXPECT_EQ(type("mlp.0", "up.weight"), "F16");           // named
  EXPECT_EQ(type("mlp.1", "up.weight"), "F16");
  EXPECT_EQ(type("mlp.1", "down.weight"), "I8");
  EXPECT_EQ(type("mlp.1", "norm.weight"), "F32");
  how.keep_f16 = {"querry"};
  const testing::TemporaryFile model = testing::sample_file();
  const testing::TemporaryFolder folder;
  expect_refused(
      ErrorCode::invalid_argument,
      "there is no matrix 'querry' to be kept in f16; this model has down, embedding, gate, head, key",
      [&] { export_shards(model.path(), folder.path("shards"), how); });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path("")));
}

TEST(ShardExport, HeadsShareTheVocabularyInOrder) {
  ShardExport how = ShardSample::small();
  how.head_shards = 5;
  const ShardSample sample(testing::SampleModel{}, how);
  TokenId covered = 0;
  int heads = 0;
  for (const ShardEntry& shard : sample.manifest().shards) {
    if (shard.info.kind != ShardKind::head) continue;
    EXPECT_EQ(shard.info.vocab_first, covered);
    covered = shard.info.vocab_last;
    ++heads;
  }
  EXPECT_EQ(covered, 64);
  EXPECT_EQ(heads, 5);
  how.head_shards = 65;
  const testing::TemporaryFile model = testing::sample_file();
  const testing::TemporaryFolder folder;
  expect_refused(ErrorCode::invalid_argument, "a vocabulary of 64 cannot be split into 65 head shards",
                 [&] { export_shards(model.path(), folder.path("shards"), how); });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path("")));
}

TEST(ShardExport, AFolderThatHoldsSomethingIsLeftAlone) {
  const testing::TemporaryFile model = testing::sample_file();
  const testing::TemporaryFolder folder;
  const std::string text = "mine";
  folder.write("mine.txt", std::as_bytes(std::span(text)));
  expect_refused(ErrorCode::invalid_argument, "is there already",
                 [&] { export_shards(model.path(), folder.path("")); });
  std::filesystem::create_directory(folder.path("new"));
  export_shards(model.path(), folder.path("new"), ShardSample::small());
  EXPECT_TRUE(std::filesystem::exists(folder.path("new/manifest.json")));
  EXPECT_FALSE(std::filesystem::exists(folder.path("new.incomplete")));
  expect_refused(ErrorCode::invalid_argument, "is there already",
                 [&] { export_shards(model.path(), folder.path("new")); });
}

TEST(ShardExport, AnExportThatIsStoppedLeavesNothing) {
  const testing::TemporaryFile model = testing::sample_file();
  const testing::TemporaryFolder folder;
  ShardExport how = ShardSample::small();
  int files = 0;
  how.on_shard = [&](const ShardInfo&) {
    if (++files == 3) throw Error(ErrorCode::cancelled, "enough");
  };
  expect_refused(ErrorCode::cancelled, "enough",
                 [&] { export_shards(model.path(), folder.path("shards"), how); });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path("")));
  EXPECT_EQ(files, 3);
}

TEST(ShardExport, WeightsThatF16CannotHoldAreNamed) {
  std::vector<float> large(64 * 64, 0.0f);
  large[77] = 70000.0f;
  const testing::TemporaryFile model(
      "large.gguf",
      testing::sample_model().set_floats("blk.1.attn_output.weight", {64, 64}, large).build().bytes);
  const testing::TemporaryFolder folder;
  expect_refused(ErrorCode::numeric, "shard attention.1: tensor 'output.weight' holds numbers beyond 65504",
                 [&] { export_shards(model.path(), folder.path("shards"), ShardSample::small()); });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path("")));
}

TEST(ShardExport, LearnedPositionsLimitTheSlots) {
  const std::string gpt2 = KVTIDE_GOLDENS "/folders/gpt2-f32";  // 256 positions
  const testing::TemporaryFolder folder;
  export_shards(gpt2, folder.path("usual"), {.threads = 1});
  EXPECT_EQ(ShardFolder(folder.path("usual"), {.threads = 1}).slots(), 256);
  expect_refused(ErrorCode::invalid_argument,
                 "257 slots are more than the 256 positions that this model has learned",
                 [&] { export_shards(gpt2, folder.path("more"), {.slots = 257, .threads = 1}); });
  expect_refused(ErrorCode::invalid_argument, "a state has 1 to 1048576 slots, not 0",
                 [&] { export_shards(gpt2, folder.path("none"), {.slots = 0, .threads = 1}); });
}

}  // namespace
}  // namespace kvtide
