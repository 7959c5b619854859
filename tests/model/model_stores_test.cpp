#include "kvtide/model.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "kvtide/error.h"
#include "model/named_models.h"
#include "tests/formats/temporary_folder.h"
#include "tests/model/expect_refused.h"

namespace kvtide {
namespace {

using testing::expect_refused;

class Stores : public ::testing::Test {
 protected:
  Stores() : stores_{folder_.path("hub"), folder_.path("ollama"), folder_.path("lmstudio")} {
    const std::string tiny = "hub/models--Org--Tiny-LM/", quantized = "hub/models--Org--Tiny-GGUF/";
    write(tiny + "refs/main", "aaaaaaaa1111\n");
    write(tiny + "refs/pr/1", "bbbbbbbb2222");
    write(tiny + "snapshots/aaaaaaaa1111/config.json", "{}");
    write(tiny + "snapshots/bbbbbbbb2222/config.json", "{}");
    write(quantized + "refs/main", "cccccccc3333");
    write(quantized + "snapshots/cccccccc3333/tiny-Q4_K_M.gguf", "1");
    write(quantized + "snapshots/cccccccc3333/Q8_0/tiny-Q8_0-00001-of-00002.gguf", "1");
    write(quantized + "snapshots/cccccccc3333/Q8_0/tiny-Q8_0-00002-of-00002.gguf", "1");
    write("hub/models--gpt2/refs/main", "dddddddd4444");
    write("hub/models--gpt2/snapshots/dddddddd4444/only.gguf", "1");
    write("ollama/blobs/sha256-77", "1");
    manifest("registry.ollama.ai/library/llama3.2/latest", "sha256:77");
    manifest("registry.ollama.ai/library/llama3.2/1b", "sha256:77");
    manifest("registry.ollama.ai/someone/mine/q4", "sha256:77");
    manifest("hf.co/Org/Tiny-GGUF/Q4_K_M", "sha256:77");
    manifest("registry.ollama.ai/library/lost/latest", "sha256:88");
    write("lmstudio/Org/Tiny-GGUF/tiny-Q4_K_M.gguf", "1");
    write("lmstudio/Org/Tiny-GGUF/tiny-Q8_0.gguf", "1");
  }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder_.path(path)).parent_path());
    std::ofstream(folder_.path(path)) << text;
  }
  void manifest(const std::string& name, const std::string& digest) {
    write(
        "ollama/manifests/" + name,
        R"({"schemaVersion":2,"layers":[{"mediaType":"application/vnd.ollama.image.template","digest":"sha256:1"},)"
        R"({"mediaType":"application/vnd.ollama.image.model","digest":")" +
            digest + R"(","size":1}]})");
  }
  std::string found(const std::string& name) const {
    const auto path = stored_model(name, stores_);
    return path ? path->substr(folder_.path("").size()) : "no store";
  }
  void refused(const std::string& name, const std::string& words,
               ErrorCode code = ErrorCode::not_found) const {
    expect_refused(code, words, [&] { stored_model(name, stores_); });
  }

  testing::TemporaryFolder folder_;
  ModelStores stores_;
};

TEST_F(Stores, OtherNamesAreNone) {
  for (const char* name : {"", "tiny", "/tmp/hf", "huggingface:a/b"}) EXPECT_EQ(found(name), "no store");
}

TEST_F(Stores, AModelOfTheHubIsItsFolder_OrItsOnlyFile) {
  EXPECT_EQ(found("hf:Org/Tiny-LM"), "hub/models--Org--Tiny-LM/snapshots/aaaaaaaa1111");
  EXPECT_EQ(found("hf:Org/Tiny-LM@main"), "hub/models--Org--Tiny-LM/snapshots/aaaaaaaa1111");
  EXPECT_EQ(found("hf:Org/Tiny-LM@bbbbbb"), "hub/models--Org--Tiny-LM/snapshots/bbbbbbbb2222");
  EXPECT_EQ(found("hf:gpt2"), "hub/models--gpt2/snapshots/dddddddd4444/only.gguf");
  EXPECT_EQ(found("hf:Org/Tiny-GGUF/tiny-Q4_K_M.gguf"),
            "hub/models--Org--Tiny-GGUF/snapshots/cccccccc3333/tiny-Q4_K_M.gguf");
  refused("hf:Org/Tiny-GGUF", "Q8_0/tiny-Q8_0-00001-of-00002.gguf, tiny-Q4_K_M.gguf",
          ErrorCode::invalid_argument);
  refused("hf:Org/Tiny-GGUF/other.gguf", "there is no 'other.gguf'");
  refused("hf:Org/Other", "`hf download Org/Other` gets it");
  refused("hf:Org/Tiny-LM@v2", "no revision 'v2'; it has aaaaaaaa1111, bbbbbbbb2222");
  refused("hf:Org/Tiny-LM@aaa", "no revision 'aaa'");
}

TEST_F(Stores, AModelOfOllamaIsTheFileBehindItsManifest) {
  for (const char* name : {"ollama:llama3.2", "ollama:llama3.2:1b", "ollama:someone/mine:q4",
                           "ollama:hf.co/Org/Tiny-GGUF:Q4_K_M", "ollama:library/llama3.2"})
    EXPECT_EQ(found(name), "ollama/blobs/sha256-77") << name;
  refused("ollama:llama3.2:70b", "no tag '70b' of it; it has 1b, latest");
  refused("ollama:other", "`ollama pull other` gets it");
  refused("ollama:lost", "names a file that is not there");
  write("ollama/manifests/registry.ollama.ai/library/odd/latest", R"({"layers":[]})");
  refused("ollama:odd", "names 0 files of weights", ErrorCode::unsupported);
  write("ollama/manifests/registry.ollama.ai/library/odd/latest", "what");
  refused("ollama:odd", "odd/latest", ErrorCode::bad_format);
}

TEST_F(Stores, AModelOfLmStudioIsAFile) {
  EXPECT_EQ(found("lmstudio:Org/Tiny-GGUF/tiny-Q8_0.gguf"), "lmstudio/Org/Tiny-GGUF/tiny-Q8_0.gguf");
  refused("lmstudio:Org/Tiny-GGUF", "several files", ErrorCode::invalid_argument);
  refused("lmstudio:Tiny-GGUF", "lmstudio:ORG/NAME", ErrorCode::invalid_argument);
  refused("lmstudio:Org/Other", "there is no");
}

TEST_F(Stores, ANameDoesNotLeadOutOfItsStore) {
  write("secret/config.json", "{}");
  for (const char* name : {"hf:../secret", "hf:Org/Tiny-LM/../../../../secret",
                           "hf:Org/Tiny-LM@../../../secret", "hf:", "hf:Org//x", "lmstudio:../secret",
                           "lmstudio:Org/..", "ollama:..:x", "ollama:a/../b", "ollama:"})
    refused(name, "makes no sense", ErrorCode::invalid_argument);
  manifest("registry.ollama.ai/library/evil/latest", "../../secret/config.json");
  refused("ollama:evil", "that is not there");
}

TEST_F(Stores, AStoreThatIsNotThereIsNamed) {
  stores_ = {folder_.path("no-hub"), "", ""};
  refused("hf:a/b", "no-hub");
  refused("ollama:a", "it is not known where Ollama keeps its models");
  EXPECT_TRUE(stored_models(stores_).empty());
}

TEST_F(Stores, AListHasEveryNameThatMeansSomething) {
  std::string names;
  for (const NamedModel& model : stored_models(stores_)) {
    names += model.name + "\n";
    EXPECT_EQ(stored_model(model.name, stores_), model.path) << model.name;
  }
  EXPECT_EQ(
      names,
      "hf:Org/Tiny-GGUF/Q8_0/tiny-Q8_0-00001-of-00002.gguf\nhf:Org/Tiny-GGUF/tiny-Q4_K_M.gguf\n"
      "hf:Org/Tiny-LM\nhf:Org/Tiny-LM@bbbbbbbb2222\nhf:gpt2\n"
      "lmstudio:Org/Tiny-GGUF/tiny-Q4_K_M.gguf\nlmstudio:Org/Tiny-GGUF/tiny-Q8_0.gguf\n"
      "ollama:hf.co/Org/Tiny-GGUF:Q4_K_M\nollama:llama3.2\nollama:llama3.2:1b\nollama:someone/mine:q4\n");
}

}  // namespace
}  // namespace kvtide
