#include "model/named_models.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "kvtide/error.h"
#include "kvtide/model.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide {
namespace {

class NamedModels : public ::testing::Test {
 protected:
  NamedModels() {
    for (const char* file : {"Tiny-Llama-1.gguf", "tiny-gemma.gguf", "split-00001-of-00002.gguf",
                             "split-00002-of-00002.gguf", ".hidden.gguf", "notes.txt"})
      std::ofstream(folder_.path(file)) << "1";
    std::filesystem::create_directories(folder_.path("a-folder"));
    std::ofstream(folder_.path("a-folder/config.json")) << "{}";
    std::filesystem::create_directories(folder_.path("another"));
  }
  std::string found(const std::string& name) const { return model_path(name, folder_.path("")); }
  std::string refusal(const std::string& name, ErrorCode code, const std::string& folder) const {
    try {
      return "found " + model_path(name, folder);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      return error.message();
    }
  }
  std::string refusal(const std::string& name, ErrorCode code = ErrorCode::not_found) const {
    return refusal(name, code, folder_.path(""));
  }

  testing::TemporaryFolder folder_;
};

TEST_F(NamedModels, AreFilesAndFolders_OfASplitOneTheFirstPart) {
  std::string names;
  for (const NamedModel& model : models_in(folder_.path(""))) names += model.name + " ";
  EXPECT_EQ(names, "Tiny-Llama-1 a-folder split-00001-of-00002 tiny-gemma ");
  EXPECT_TRUE(models_in(folder_.path("nowhere")).empty());
}

TEST_F(NamedModels, APathStaysAPath) {
  for (const char* path : {"", "./llama", "models/llama", "llama.gguf", "/"}) {
    EXPECT_TRUE(names_a_path(path)) << path;
    EXPECT_EQ(model_path(path, folder_.path("")), path);
  }
  EXPECT_FALSE(names_a_path("no-such-model"));
}

TEST_F(NamedModels, AreFoundByNameOrBeginning_WithoutCapitalsAndDashes) {
  for (const char* name : {"Tiny-Llama-1", "tinyllama1", "TINY_L"})
    EXPECT_TRUE(found(name).ends_with("/Tiny-Llama-1.gguf")) << name;
  EXPECT_TRUE(found("a").ends_with("/a-folder"));
  const std::string several = refusal("tiny", ErrorCode::invalid_argument);
  EXPECT_EQ(several, "tiny: several models begin so: Tiny-Llama-1, tiny-gemma");
}

TEST_F(NamedModels, ThatAreNotThereCanBeFetched) {
  for (const char* name : {"gemma3", "Gemma-3", "gemma", "gemma-3-270m"})
    EXPECT_NE(refusal(name).find("; `kvtide fetch gemma3` gets Gemma-3-270M"), std::string::npos)
        << refusal(name);
  EXPECT_NE(refusal("smolm2").find("did you mean smollm2? `kvtide fetch smollm2` gets"), std::string::npos);
}

TEST_F(NamedModels, ThatAreMistypedAreNamed) {
  EXPECT_NE(refusal("tinny-lama").find("did you mean Tiny-Llama-1?"), std::string::npos)
      << refusal("tinny-lama");
  EXPECT_NE(refusal("gpt-9").find("`kvtide models` lists what is there"), std::string::npos)
      << refusal("gpt-9");
}

TEST_F(NamedModels, WithoutAFolderSayWhatWouldNameOne) {
  const std::string why = refusal("gemma3", ErrorCode::not_found, "");
  EXPECT_NE(why.find("neither KVTIDE_MODELS, XDG_CACHE_HOME nor HOME is set; `kvtide fetch gemma3`"),
            std::string::npos);
}

}  // namespace
}  // namespace kvtide
