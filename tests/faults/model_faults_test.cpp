// Loading, when memory ends: models of every format, and their tokenizers.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "kvtide/chat.h"
#include "kvtide/model.h"
#include "kvtide/session.h"
#include "tests/faults/every_allocation.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide {
namespace {

using testing::fail_every_allocation;
using testing::Trial;

const std::string kGoldens = KVTIDE_GOLDENS;

// What a loaded model answers.
std::string answer(const Model& model) {
  Session session(model, {.context = 32, .threads = 1});
  const std::vector<TokenId> ids = {1, 2, 3};
  session.read(ids);
  return std::to_string(hash_logits(session.logits())) + " " + std::to_string(model.parameters()) + " " +
         model.identity().at("model") + " " + model.identity().at("tokenizer");
}

void load_under_faults(const std::string& path, const ModelOptions& options) {
  std::optional<Model> model;
  Trial trial;
  trial.name = "load " + path.substr(path.rfind('/') + 1) + (options.map_file ? "" : ", copied");
  trial.run = [&] { model.emplace(path, options); };
  trial.look = [&] { return std::string(model ? "loaded" : "not loaded"); };
  trial.end = [&] { return answer(*model); };
  trial.destroy = [&] { model.reset(); };
  fail_every_allocation(trial);
}

TEST(AllocationFaults, AGgufFileIsLoadedOrMemoryEnded) {
  load_under_faults(kGoldens + "/models/llama-mha-untied.gguf", {.threads = 2});
  load_under_faults(kGoldens + "/models/gemma3-window.gguf", {.threads = 2, .map_file = false});
}

TEST(AllocationFaults, AFolderIsLoadedOrMemoryEnded) {
  for (const char* name :
       {"llama-f32", "gemma3-f32", "gpt2-f32", "mistral-f16-shards", "qwen3-i8", "zaya-f16"})
    load_under_faults(kGoldens + "/folders/" + name, {.threads = 2});
}

// Made anew each time, and mapped: a file that memory did not suffice for is not there, or is done without.
TEST(AllocationFaults, PackedWeightsAreMadeAndMappedOrMemoryEnded) {
  const testing::TemporaryFolder folder;
  ModelOptions options{.threads = 2};
  options.packed.folder = folder.path("cache");
  options.packed.smallest = 0;
  for (const char* name : {"models/llama-mha-untied.gguf", "folders/qwen3-i8"})
    for (const bool anew : {true, false}) {
      const std::string path = kGoldens + "/" + name;
      std::optional<Model> model;
      Trial trial;
      trial.name = std::string(anew ? "pack and load " : "map ") + name;
      trial.run = [&] { model.emplace(path, options); };
      trial.look = [&] { return std::string(model ? "loaded" : "not loaded"); };
      trial.end = [&] { return answer(*model); };
      trial.destroy = [&] {
        model.reset();
        if (anew) std::filesystem::remove_all(options.packed.folder);
      };
      fail_every_allocation(trial);
    }
}

TEST(AllocationFaults, TextBecomesTokensAndTextAgainOrMemoryEnded) {
  for (const char* name : {"models/llama-mha-untied.gguf", "models/gemma3-window.gguf", "folders/llama-f32",
                           "folders/gemma3-f32", "folders/qwen3-i8"}) {
    const Model model(kGoldens + "/" + name, {.threads = 1});
    const Tokenizer& tokenizer = model.tokenizer();
    std::string text = "The tide comes in, and caf\u00e9s close: e\u0301 12 34.\n\n  <s> ";
    while (text.size() < 17000) text += text;  // long enough for a cache of words
    std::vector<TokenId> ids;
    std::string back, first, missing;
    Trial trial;
    trial.name = std::string("encode and decode, ") + name;
    trial.run = [&] {
      ids = tokenizer.encode(text);
      back = tokenizer.decode(std::span(ids).first(200));
      first = tokenizer.piece(ids.front(), true);
      missing = tokenizer.missing_bytes();
    };
    trial.end = [&] { return back + first + missing; };
    trial.destroy = [&] {
      ids = std::vector<TokenId>();
      back = first = missing = std::string();
    };
    fail_every_allocation(trial);
  }
}

TEST(AllocationFaults, AConversationIsWrittenDownOrMemoryEnded) {
  const std::vector<ChatMessage> messages = {{"user", "What comes in twice a day, every day, at the sea?"},
                                             {"assistant", "The tide does, and it takes its time."},
                                             {"user", "And what goes out again, without being asked to?"}};
  for (const std::string_view name : ChatTemplate::names()) {
    const ChatTemplate chat = ChatTemplate::named(name);
    std::vector<TextSegment> written;
    Trial trial;
    trial.name = "render a chat, " + std::string(name);
    trial.run = [&] { written = chat.render(messages); };
    trial.end = [&] {
      std::string all;
      for (const TextSegment& segment : written) all += segment.text;
      return all;
    };
    trial.destroy = [&] { written = {}; };
    fail_every_allocation(trial);
  }
}

}  // namespace
}  // namespace kvtide
