// Sessions on packed weights that are mapped from a file: the same bits as on weights in memory, whatever the
// model's type, architecture and format, and almost no memory of their own.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "kvtide/session.h"
#include "tests/base/in_child.h"
#include "tests/engine/logits.h"
#include "tests/formats/temporary_folder.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::SampleModel;

std::vector<float> logits_of(const Model& model, bool exact) {
  SessionOptions options;
  options.exact = exact;
  options.context = 64;
  return testing::all_logits(model, options, testing::random_tokens(20, model.vocabulary(), 8));
}

// Loads three times: into memory, into a file, from that file.
void expect_same_bits(const std::string& path, const std::string& what) {
  const testing::TemporaryFolder folder;
  ModelOptions options;
  options.threads = 2;
  const Model plain(path, options);
  options.packed.folder = folder.path("cache");
  options.packed.smallest = 0;
  for (const bool first : {true, false}) {
    const Model model(path, options);
    EXPECT_EQ(model.packed().made, first) << what;
    EXPECT_TRUE(model.packed().notes.empty()) << what << ": " << model.packed().notes[0];
    EXPECT_EQ(model.weights_bytes(), plain.weights_bytes()) << what;
    for (const bool exact : {false, true})
      EXPECT_TRUE(testing::same_bits(logits_of(model, exact), logits_of(plain, exact)))
          << what << (first ? " when made" : " when mapped") << (exact ? ", exact" : "");
  }
}

TEST(PackedSession, GivesTheSameBits_ForEveryWeightType) {
  for (const auto& info : kDTypes)
    for (const char* architecture : {"llama", "qwen3"}) {
      SampleModel sample{.architecture = architecture, .layers = 2, .width = 256, .hidden = 256, .heads = 2};
      sample.head_dim = 128;
      // As in files that people run: several types in one.
      sample.types = {info.dtype, info.dtype, DType::q6_k};
      const auto file = testing::sample_file(sample);
      expect_same_bits(file.path(), std::string(architecture) + " " + std::string(info.name));
    }
}

TEST(PackedSession, GivesTheSameBits_ForFoldersAndFilesOfEveryArchitecture) {
  for (const char* kind : {"/folders", "/models"})
    for (const auto& entry : std::filesystem::directory_iterator(std::string(KVTIDE_GOLDENS) + kind))
      if (entry.is_directory() || entry.path().extension() == ".gguf")
        expect_same_bits(entry.path().string(), entry.path().filename().string());
}

TEST(PackedSession, ACopiedFile_IsNotMappedByWayOfTheCache) {
  const testing::TemporaryFolder folder;
  const auto file = testing::sample_file({.types = {DType::q8_0}});
  ModelOptions options;
  options.map_file = false;
  options.packed.folder = folder.path("cache");
  options.packed.smallest = 0;
  const Model model(file.path(), options);
  EXPECT_EQ(model.packed().file, "");
  EXPECT_FALSE(std::filesystem::exists(folder.path("cache")));
}

TEST(PackedSession, GoesOn_WhenItsFileIsRemovedOrReplaced) {
  const testing::TemporaryFolder folder;
  const auto file = testing::sample_file({.types = {DType::q8_0}});
  ModelOptions options;
  options.packed.folder = folder.path("cache");
  options.packed.smallest = 0;
  const Model model(file.path(), options);
  const std::vector<float> before = logits_of(model, false);
  std::filesystem::remove(model.packed().file);
  EXPECT_TRUE(testing::same_bits(logits_of(model, false), before));
  std::filesystem::remove_all(folder.path("cache"));
  EXPECT_TRUE(testing::same_bits(logits_of(model, false), before));
  EXPECT_TRUE(Model(file.path(), options).packed().made);
}

// Bytes of a line of /proc/self/smaps_rollup; -1: the system does not tell.
std::int64_t rollup(const std::string& key) {
  std::ifstream lines("/proc/self/smaps_rollup");
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key + ":")) {
      std::istringstream rest(line.substr(key.size() + 1));
      std::int64_t kilobytes = 0;
      rest >> kilobytes;
      return kilobytes * 1024;
    }
  return -1;
}

// 64 MiB of weights: in memory they are the process's own, mapped they are pages of the file.
TEST(PackedSession, TakesNoMemoryOfItsOwnForWeights) {
  if (rollup("Anonymous") < 0) GTEST_SKIP() << "no /proc/self/smaps_rollup";
  SampleModel sample{.layers = 2, .width = 1024, .hidden = 8192, .heads = 4};
  sample.types = {DType::q8_0};
  const auto file = testing::sample_file(sample);
  const testing::TemporaryFolder folder;
  ModelOptions options;
  options.threads = 2;
  // Of a load and a forward pass, in a process of its own: "" or what it took too much.
  const auto load = [&](std::int64_t most_private, std::int64_t least_shared) {
    return testing::in_child([&]() -> std::string {
      const std::int64_t before = rollup("Anonymous"), resident = rollup("Rss");
      const Model model(file.path(), options);
      logits_of(model, false);
      const std::int64_t own = rollup("Anonymous") - before, all = rollup("Rss") - resident;
      if (own > most_private) return "private: " + std::to_string(own);
      if (all - own < least_shared) return "file pages: " + std::to_string(all - own);
      return "";
    });
  };
  constexpr std::int64_t kMiB = 1 << 20, kAround = 20 * kMiB;  // sanitizers take their share
  const std::int64_t weights = Model(file.path(), options).weights_bytes();
  EXPECT_GT(weights, 50 * kMiB);
  EXPECT_NE(load(kAround, 0), "") << "in memory";
  options.packed.folder = folder.path("cache");
  EXPECT_EQ(load(kAround, weights / 2), "") << "the first load, which makes the file";
  EXPECT_EQ(load(kAround, weights / 2), "") << "the second, which maps it";
}

}  // namespace
}  // namespace kvtide
