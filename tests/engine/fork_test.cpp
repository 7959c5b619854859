// What a process that forks (fork(2)) finds in the child: the memory of its sessions, without their threads.
// Nothing may wait for threads that are not there.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "kvtide/error.h"
#include "kvtide/session.h"
#include "tests/base/in_child.h"
#include "tests/base/thread_sanitizer.h"
#include "tests/base/time_limit.h"
#include "tests/engine/logits.h"
#include "tests/formats/temporary_folder.h"
#include "tests/kernels/same_bits.h"
#include "tests/model/sample_model.h"

namespace kvtide {
namespace {

using testing::all_logits;
using testing::in_child;
using testing::random_tokens;
using testing::same_bits;

// ThreadSanitizer ends a child of a process with threads that starts one.
constexpr int kThreads = kThreadSanitizer ? 1 : 3;

class Fork : public ::testing::Test {
 protected:
  static SessionOptions with_threads(int threads) {
    SessionOptions options;
    options.threads = threads;
    options.prefill_chunk = 16;
    return options;
  }
  const testing::TemporaryFile file_{"sample.gguf", testing::sample_model({.gain = 2.0f}).build().bytes};
  const Model model_{file_.path()};
  const std::vector<TokenId> text_ = random_tokens(120, 64, 5);
  const std::vector<float> wanted_ = all_logits(model_, with_threads(1), text_);
  const std::span<const float> last_ = std::span(wanted_).last(64);
};

TEST_F(Fork, AChildGoesOnWithASession_InTheSameBits_AndSoDoesItsParent) {
  Session session(model_, with_threads(kThreads));
  const std::span<const TokenId> text = text_;
  session.read(text.first(50));
  EXPECT_EQ(in_child([&] {
              session.read(text.subspan(50));
              return same_bits(session.logits(), last_) ? "" : "other bits";
            }),
            "");
  EXPECT_EQ(session.position(), 50);
  session.read(text.subspan(50));
  EXPECT_TRUE(same_bits(session.logits(), last_));
}

TEST_F(Fork, AChildMayEndASession_WhoseThreadsItDoesNotHave) {
  auto session = std::make_unique<Session>(model_, with_threads(3));
  session->read(text_);
  EXPECT_EQ(in_child([&] {
              session.reset();
              return "";
            }),
            "");
}

TEST_F(Fork, AChildMakesSessionsOfTheModel_AndOfItsParentsMemory) {
  Session session(model_, with_threads(kThreads));
  const std::span<const TokenId> text = text_;
  session.read(text.first(50));
  EXPECT_EQ(in_child([&]() -> std::string {
              Session own(model_, with_threads(kThreads));
              own.restore(session.state());
              own.read(text.subspan(50));
              if (!same_bits(own.logits(), last_)) return "other bits";
              own.clear();
              own.read(text);
              return same_bits(own.logits(), last_) ? "" : "other bits when it reads all";
            }),
            "");
}

TEST_F(Fork, WhileOtherThreadsComputeAndHash_LeavesTheModelUsableInTheChild) {
  const testing::TimeLimit limit("a thread that computes while its process forks");
  for (int round = 0; round < 10; ++round) {
    const Model model(file_.path());
    std::atomic<bool> started{false}, stop{false};
    std::thread busy([&] {
      Session session(model, with_threads(2));
      started = true;
      do {
        session.clear();
        session.read(text_);
        static_cast<void>(model.identity());
      } while (!stop);
    });
    while (!started) std::this_thread::yield();
    EXPECT_EQ(in_child([&]() -> std::string {
                if (model.identity().at("model").size() != 64) return "no hash";
                Session own(model, with_threads(kThreads));
                own.read(text_);
                return same_bits(own.logits(), last_) ? "" : "other bits";
              }),
              "");
    stop = true;
    busy.join();
  }
}

TEST_F(Fork, AChildMayNotWriteIntoTheSpillFileOfItsParent) {
  const testing::TemporaryFolder folder;
  SessionOptions options = with_threads(1);
  options.procedural.emplace();
  options.procedural->window = 32;
  options.procedural->block = 16;
  options.procedural->rows = 8;
  options.procedural->heads.kv_heads = 2;
  options.procedural->heads.needs.assign(4, HeadNeed{.induction = 1.0f});
  options.procedural->full_rows = 32;
  options.procedural->spill = folder.path("spill");
  const auto wanted = all_logits(model_, options, text_);
  Session session(model_, options);
  const std::span<const TokenId> text = text_;
  session.read(text.first(60));
  EXPECT_EQ(in_child([&]() -> std::string {
              try {
                session.read(text.subspan(60));
              } catch (const Error& error) {
                return error.message().find("belongs to the process that made it") == std::string::npos
                           ? error.message()
                           : "";
              }
              return "it wrote";
            }),
            "");
  session.read(text.subspan(60));
  EXPECT_TRUE(same_bits(session.logits(), std::span(wanted).last(64)));
}

}  // namespace
}  // namespace kvtide
