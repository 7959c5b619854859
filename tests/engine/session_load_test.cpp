// A session that is asked to load a file which it cannot load goes on as if it had never been asked.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>

#include "kvtide/error.h"
#include "kvtide/session.h"
#include "tests/engine/logits.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide {
namespace {

std::vector<std::byte> contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// The likeliest tokens one after another, and a hash of all logits on the way.
struct Continuation {
  std::vector<TokenId> tokens;
  std::uint64_t hash = 0;
  friend bool operator==(const Continuation&, const Continuation&) = default;
};

Continuation go_on(Session& session, int tokens) {
  Continuation found;
  for (int i = 0; i < tokens; ++i) {
    const auto logits = session.logits();
    found.hash = hash_logits(logits, found.hash);
    found.tokens.push_back(
        static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    session.read({{found.tokens.back()}});
  }
  return found;
}

SessionOptions small_options() {
  SessionOptions options;
  options.context = 200;
  options.threads = 1;
  return options;
}

void expect_refusals_change_nothing(const std::string& name, const SessionOptions& options) {
  const Model model(std::string(KVTIDE_GOLDENS "/models/") + name);
  const auto text = testing::random_tokens(60, model.vocabulary(), 1);
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("other.kv");
  Session other(model, options);
  other.read(testing::random_tokens(50, model.vocabulary(), 2));
  other.save(path);
  const auto sound = contents(path);

  Session undisturbed(model, options);
  undisturbed.read(text);
  const Continuation wanted = go_on(undisturbed, 64);

  Session live(model, options);
  live.read(text);
  int refused = 0;
  const auto expect_refused = [&](const std::vector<std::byte>& bytes, const std::string& what) {
    const std::string broken = folder.write("broken.kv", bytes);
    try {
      live.load(broken);
      ADD_FAILURE() << "loaded a file with " << what;
    } catch (const Error& error) {
      EXPECT_TRUE(error.message().starts_with(broken)) << error.message();
      ++refused;
    }
  };
  for (std::size_t size = 0; size < sound.size(); size += 1 + sound.size() / 40)
    expect_refused({sound.begin(), sound.begin() + static_cast<std::ptrdiff_t>(size)}, "its end cut off");
  for (std::size_t at = 0; at < sound.size(); at += 1 + sound.size() / 40) {
    auto flipped = sound;
    flipped[at] ^= std::byte{16};
    expect_refused(flipped, "a flipped bit");
  }
  EXPECT_THROW(live.load(folder.path("absent.kv")), Error);
  EXPECT_THROW(live.load(folder.path("")), Error);
  EXPECT_GE(refused, 70);
  EXPECT_EQ(live.position(), 60);
  EXPECT_EQ(live.tokens(), text);
  EXPECT_EQ(go_on(live, 64), wanted);

  // The file itself can be loaded: the refusals were due to the damage.
  live.load(path);
  EXPECT_EQ(live.position(), 50);
}

TEST(SessionLoad, RefusedBecauseTheFileIsDamaged_LeavesTheNext64TokensUnchanged) {
  expect_refusals_change_nothing("llama-mha-untied.gguf", small_options());
}

TEST(SessionLoad, RefusedBecauseTheFileIsDamaged_LeavesTheNext64TokensUnchanged_WithSlidingWindows) {
  SessionOptions options = small_options();
  options.value_type = ElementType::f32;
  options.slack = 8;
  expect_refusals_change_nothing("gemma3-window.gguf", options);
}

TEST(SessionLoad, RefusedBecauseTheFileIsOfAnotherModel_LeavesTheNext64TokensUnchanged) {
  const testing::TemporaryFolder folder;
  const Model model(KVTIDE_GOLDENS "/models/llama-mha-untied.gguf"),
      stranger(KVTIDE_GOLDENS "/models/llama-rope-linear.gguf");
  const SessionOptions options = small_options();
  const auto text = testing::random_tokens(60, model.vocabulary(), 1);
  Session other(stranger, options), undisturbed(model, options), live(model, options), exact(model, [&] {
    SessionOptions with = options;
    with.exact = true;
    return with;
  }());
  other.read(testing::random_tokens(20, stranger.vocabulary(), 3));
  other.save(folder.path("stranger.kv"));
  exact.read(text);
  exact.save(folder.path("exact.kv"));
  undisturbed.read(text);
  live.read(text);
  for (const char* name : {"stranger.kv", "exact.kv"}) {
    try {
      live.load(folder.path(name));
      ADD_FAILURE() << "loaded " << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.message();
    }
  }
  EXPECT_EQ(go_on(live, 64), go_on(undisturbed, 64));
}

}  // namespace
}  // namespace kvtide
