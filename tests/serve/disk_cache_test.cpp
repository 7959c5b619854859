// Prefixes on the disk: the bits of an answer do not depend on them, whatever is done to the files, and the limit of
// bytes is held.
#include "serve/work/disk_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/base/faulty_files.h"
#include "tests/engine/logits.h"
#include "tests/formats/temporary_folder.h"
#include "tests/serve/asking.h"

namespace kvtide {
namespace {

namespace fs = std::filesystem;
using serve::DiskCache;
using serve::DiskOptions;
using testing::ask;

// The system's files; call number `at` fails.
class FailingFiles final : public FileSystem {
 public:
  explicit FailingFiles(testing::Fault fault) : faulty_(real_, fault) {}
  int open(const char* path, int flags, unsigned mode) override { return faulty_.open(path, flags, mode); }
  std::int64_t read(int fd, void* data, std::size_t size) override { return faulty_.read(fd, data, size); }
  std::int64_t write(int fd, const void* data, std::size_t size) override {
    return faulty_.write(fd, data, size);
  }
  std::int64_t size(int fd) override { return faulty_.size(fd); }
  int sync(int fd) override { return faulty_.sync(fd); }
  int close(int fd) override { return faulty_.close(fd); }
  int rename(const char* from, const char* to) override { return faulty_.rename(from, to); }
  int unlink(const char* path) override { return faulty_.unlink(path); }

 private:
  PosixFiles real_;
  testing::FaultyFiles faulty_;
};

class DiskCacheTest : public ::testing::Test {
 protected:
  serve::ServiceOptions with_disk(std::int64_t bytes = std::int64_t{1} << 30) {
    serve::ServiceOptions out = testing::small_service();
    out.cache_folder = folder_.path("cache");
    out.cache_bytes = bytes;
    out.log = [this](const std::string& line) { log_.push_back(line); };
    return out;
  }
  DiskOptions options(std::int64_t bytes = std::int64_t{1} << 30) {
    return {folder_.path("cache"), bytes, "test", false,
            [this](const std::string& line) { log_.push_back(line); }};
  }

  static std::string body(int begins_with, int letters, const std::string& more = "") {
    std::string prompt;
    for (int i = 0; i < letters; ++i) prompt += static_cast<char>('a' + (i * i + begins_with) % 26);
    return R"({"prompt":")" + prompt + R"(","temperature":0,"max_tokens":6,"logprobs":2)" + more + "}";
  }
  // The choices, and how many tokens were spared.
  static std::pair<std::string, std::int64_t> answer(serve::Server& server, const std::string& body) {
    const auto reply = ask(server, "/v1/completions", body);
    EXPECT_EQ(reply->status(), 200) << reply->body();
    const JsonValue json = testing::json_of(*reply);
    const JsonValue* details = json.find("usage")->find("prompt_tokens_details");
    return {json_text(*json.find("choices"), JsonForm::line), *details->find("cached_tokens")->integer()};
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(folder_.path("cache")))
      if (entry.path().extension() == ".kv") out.push_back(entry.path());
    std::sort(out.begin(), out.end());
    return out;
  }
  std::int64_t bytes() const {
    std::int64_t out = 0;
    for (const fs::path& file : files()) out += static_cast<std::int64_t>(fs::file_size(file));
    return out;
  }
  State state_of(const Model& model, std::uint64_t seed, std::size_t tokens = 100) const {
    SessionOptions how;
    how.threads = 1;
    how.slack = 64;
    Session session(model, how);
    session.read(testing::random_tokens(tokens, 64, seed));
    return session.state().fork();
  }

  const testing::TemporaryFolder folder_;
  std::vector<std::string> log_;
  const testing::TemporaryFile file_ = testing::chat_model_file();
  const Model model_{file_.path()};
};

TEST_F(DiskCacheTest, WhatOneServerReadTheNextGoesOnFrom) {
  const testing::TemporaryFile windowed = testing::chat_model_file(testing::sample_with_windows());
  const Model other(windowed.path());
  for (const std::string kv : {"", R"(,"kv":{"kind":"rolling","window":64,"sinks":4})",
                               R"(,"kv":{"kind":"procedural","budget":"8M","window":32})"})
    for (const Model* model : {&model_, &other}) {
      fs::remove_all(folder_.path("cache"));
      const std::string wanted_body = body(0, 150, kv);
      std::string wanted;
      {
        serve::Server server({{"tiny", model}}, with_disk());
        wanted = answer(server, wanted_body).first;
      }
      ASSERT_FALSE(files().empty()) << kv;
      serve::Server server({{"tiny", model}}, with_disk());
      const auto [got, spared] = answer(server, wanted_body);
      EXPECT_EQ(got, wanted) << kv;
      EXPECT_GT(spared, 80) << kv;
      EXPECT_TRUE(log_.empty()) << log_[0];
    }
}

TEST_F(DiskCacheTest, AnEarlierPlaceOfATextIsReachedByItsCheckpoints) {
  const std::string kv = R"(,"kv":{"kind":"rolling","window":64,"sinks":4})";
  serve::ServiceOptions options = with_disk();
  options.work.checkpoints.every = 32;
  const std::string earlier = body(0, 200, kv), wanted = [&] {
    serve::Server alone({{"tiny", &model_}}, testing::small_service());
    return answer(alone, earlier).first;
  }();
  {
    serve::Server server({{"tiny", &model_}}, options);
    answer(server, body(0, 450, kv));
  }
  serve::Server server({{"tiny", &model_}}, options);
  const auto [got, spared] = answer(server, earlier);
  EXPECT_EQ(got, wanted);
  EXPECT_GT(spared, 160);
}

TEST_F(DiskCacheTest, OtherMemoriesAndOtherModelsFindNothing) {
  {
    serve::Server server({{"tiny", &model_}}, with_disk());
    answer(server, body(0, 150));
  }
  {
    serve::Server server({{"tiny", &model_}}, with_disk());
    EXPECT_EQ(answer(server, body(0, 150, R"(,"kv":{"kind":"rolling","window":64,"sinks":4})")).second, 0);
  }
  testing::SampleModel sample = testing::small_sample();
  sample.seed = 99;
  const testing::TemporaryFile file = testing::chat_model_file(sample);
  const Model other(file.path());
  {
    serve::Server server({{"tiny", &other}}, with_disk());
    EXPECT_EQ(answer(server, body(0, 150)).second, 0);
  }
  EXPECT_GE(files().size(), 3U) << "what belongs to the other model stays";
  serve::ServiceOptions newer = with_disk();
  newer.version = "test 2";
  serve::Server server({{"tiny", &model_}}, newer);
  EXPECT_EQ(answer(server, body(0, 150)).second, 0);
  EXPECT_FALSE(log_.empty());
}

TEST_F(DiskCacheTest, EveryDamageIsAMiss) {
  std::string wanted;
  {
    serve::Server server({{"tiny", &model_}}, with_disk());
    wanted = answer(server, body(0, 60)).first;
  }
  ASSERT_EQ(files().size(), 1U);
  const fs::path path = files()[0];
  std::ifstream in(path, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  testing::Rng rng(3);
  for (int i = 0; i < 60; ++i) {
    std::string damaged = whole;
    if (i % 3 == 0)
      damaged.resize(rng.below(whole.size()));
    else
      damaged[rng.below(i % 3 == 1 ? 2000 : whole.size())] ^= static_cast<char>(1 << rng.below(8));
    for (const fs::path& file : files()) fs::remove(file);
    std::ofstream(path, std::ios::binary) << damaged;
    serve::Server server({{"tiny", &model_}}, with_disk());
    const std::size_t lines = log_.size();
    EXPECT_EQ(answer(server, body(0, 60)).first, wanted) << i;
    EXPECT_LE(log_.size(), lines + 1);
  }
}

TEST_F(DiskCacheTest, EveryFaultOfTheFileSystemIsAMiss) {
  const State state = state_of(model_, 1);
  for (std::int64_t at = 1;; ++at) {
    auto owned = std::make_unique<FailingFiles>(testing::Fault{at, ENOSPC, at % 2 == 0});
    fs::remove_all(folder_.path("cache"));
    log_.clear();
    DiskCache disk({&model_}, options(), std::move(owned));
    disk.write(model_, state);
    EXPECT_FALSE(disk.writes());
    const auto read = disk.find(model_, state.tokens(), state, 0);
    if (read) disk.fetch(read);
    if (read && read->state) {
      EXPECT_EQ(read->state->tokens(), state.tokens());
    }
    for (const auto& entry : fs::directory_iterator(folder_.path("cache")))
      EXPECT_TRUE(at % 2 == 0 || entry.path().string().find(".tmp") == std::string::npos);
    if (log_.empty() && read && read->state && at > 3) break;
    ASSERT_LT(at, 200);
  }
}

TEST_F(DiskCacheTest, TheLimitIsHeldAndWhatWasUsedStays) {
  std::int64_t one = 0;
  {
    DiskCache disk({&model_}, options());
    disk.write(model_, state_of(model_, 1));
    one = bytes();
    ASSERT_GT(one, 0);
    EXPECT_TRUE(disk.holds(model_, state_of(model_, 1)));
  }
  DiskCache disk({&model_}, options(2 * one + (std::int64_t{2} << 20)));
  const State used = state_of(model_, 1);
  for (std::uint64_t seed = 2; seed < 12; ++seed) {
    if (const auto read = disk.find(model_, used.tokens(), used, 0)) disk.fetch(read);
    disk.write(model_, state_of(model_, seed));
    EXPECT_LE(bytes(), 2 * one + (std::int64_t{2} << 20));
    EXPECT_EQ(bytes(), disk.figures().bytes);
  }
  EXPECT_GE(disk.figures().hits, 1);
}

TEST_F(DiskCacheTest, ALongerTextTakesThePlaceOfItsBeginning) {
  DiskCache disk({&model_}, options());
  disk.write(model_, state_of(model_, 1, 60));
  disk.write(model_, state_of(model_, 1, 200));
  EXPECT_EQ(files().size(), 1U);
  disk.write(model_, state_of(model_, 1, 210));  // too little is new
  EXPECT_EQ(disk.figures().written, 2);
  disk.write(model_, state_of(model_, 1, 210), true);
  EXPECT_EQ(disk.figures().written, 3);
  EXPECT_EQ(files().size(), 1U);
}

TEST_F(DiskCacheTest, BehindTheEndOfItsTimeNothingIsWritten) {
  DiskCache disk({&model_}, options());
  disk.save_until(std::chrono::steady_clock::now() - std::chrono::seconds(1));
  disk.write(model_, state_of(model_, 1));
  EXPECT_TRUE(files().empty());
  EXPECT_FALSE(disk.writes());
}

// With threads: a budget that holds only some of what is asked for, so that states come and go.
TEST_F(DiskCacheTest, BitsAreEqualWhileStatesComeAndGo) {
  std::vector<std::string> wanted;
  for (int i = 0; i < 12; ++i) {
    serve::Server alone({{"tiny", &model_}}, testing::small_service());
    wanted.push_back(answer(alone, body(i % 6, 80 + 10 * i)).first);
  }
  serve::ServiceOptions how = with_disk();
  how.work.kv_budget = std::int64_t{5} << 19;
  how.log = {};
  how.idle = {0.05, 0.05};
  std::int64_t hits = 0;
  for (int round = 0; round < 3; ++round) {
    serve::Server server({{"tiny", &model_}}, how);
    server.start();
    for (int pass = 0; pass < 3; ++pass) {
      std::vector<std::shared_ptr<testing::WaitedReply>> replies;
      for (int i = 0; i < 12; ++i) {
        replies.push_back(std::make_shared<testing::WaitedReply>());
        server.handle(testing::request_of("POST", "/v1/completions", body(i % 6, 80 + 10 * i)),
                      replies.back());
      }
      for (std::size_t i = 0; i < replies.size(); ++i) {
        const JsonValue json = JsonValue::parse(replies[i]->wait(), "the answer");
        ASSERT_NE(json.find("choices"), nullptr) << replies[i]->wait();
        EXPECT_EQ(json_text(*json.find("choices"), JsonForm::line), wanted[i]);
      }
      EXPECT_LE(server.scheduler().counts().kv_bytes, how.work.kv_budget);
    }
    const auto metrics = std::make_shared<testing::WaitedReply>();
    server.handle(testing::request_of("GET", "/metrics"), metrics);
    const std::string text = metrics->wait();
    const std::string name = "\nkvtide_disk_hits_total ";
    hits += std::stoll(text.substr(text.find(name) + name.size()));
    server.stop(1);
  }
  EXPECT_GT(hits, 0);
}

}  // namespace
}  // namespace kvtide
