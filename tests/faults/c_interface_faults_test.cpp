// kvtide.h, when memory ends: KVTIDE_OK or KVTIDE_OUT_OF_MEMORY, and handles that can be used or freed.
#include <gtest/gtest.h>

#include <vector>

#include "kvtide/error.h"
#include "kvtide/kvtide.h"
#include "tests/faults/every_allocation.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide {
namespace {

using testing::fail_every_allocation;
using testing::Trial;

const char* const kPath = KVTIDE_GOLDENS "/models/llama-mha-untied.gguf";

// Results of the C interface as the trials want them.
void expect_ok(std::int64_t result) {
  if (result >= 0) return;
  throw Error(result == KVTIDE_OUT_OF_MEMORY ? ErrorCode::out_of_memory : ErrorCode::invalid_argument,
              result == KVTIDE_OUT_OF_MEMORY ? "out of memory" : "another code");
}

class CInterfaceFaults : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(kvtide_model_load(kPath, &model_), KVTIDE_OK); }
  void TearDown() override { kvtide_model_free(model_); }

  void make() {
    kvtide_session_options options = kvtide_session_defaults();
    options.context = 60;
    options.threads = 2;
    ASSERT_EQ(kvtide_session_new(model_, &options, &session_), KVTIDE_OK);
    ASSERT_EQ(kvtide_session_read(session_, ids_.data(), 20, nullptr, nullptr), KVTIDE_OK);
  }
  static std::string seen(kvtide_session* session) {
    const float* logits = nullptr;
    const std::int64_t count = kvtide_session_logits(session, &logits);
    kvtide_numbers numbers;
    EXPECT_EQ(kvtide_session_numbers(session, &numbers), KVTIDE_OK);
    return std::to_string(numbers.position) + " " + std::to_string(numbers.capacity) + " " +
           std::string(reinterpret_cast<const char*>(logits),
                       static_cast<std::size_t>(count) * sizeof(float));
  }
  // What is made, and made again after a fault, is freed first: a handle that failed is one, too.
  Trial trial(const std::string& name, std::function<void()> run) {
    Trial t;
    t.name = "C: " + name;
    t.make = [this] { make(); };
    t.run = std::move(run);
    t.look = [this] { return seen(session_); };
    t.end = [this] { return seen(session_) + (other_ == nullptr ? "" : seen(other_)); };
    t.destroy = [this] {
      kvtide_session_free(session_);
      kvtide_session_free(other_);
      kvtide_state_free(state_);
      session_ = other_ = nullptr;
      state_ = nullptr;
    };
    return t;
  }

  kvtide_model* model_ = nullptr;
  kvtide_session *session_ = nullptr, *other_ = nullptr;
  kvtide_state* state_ = nullptr;
  const std::vector<std::int32_t> ids_ = std::vector<std::int32_t>(30, 5);
};

TEST_F(CInterfaceFaults, AModelIsLoadedOrItsHandleSaysThatMemoryEnded) {
  kvtide_model* model = nullptr;
  Trial t;
  t.name = "C: load";
  t.run = [&] {
    kvtide_model_free(model);
    model = nullptr;
    const std::int32_t result = kvtide_model_load(kPath, &model);
    if (result < 0 && model != nullptr && kvtide_model_error(model) == nullptr) expect_ok(KVTIDE_INTERNAL);
    expect_ok(result);
  };
  t.end = [&] { return std::to_string(kvtide_model_vocabulary(model)); };
  t.destroy = [&] {
    kvtide_model_free(model);
    model = nullptr;
  };
  fail_every_allocation(t);
}

TEST_F(CInterfaceFaults, SessionsAreMadeReadForkedAndChangedOrMemoryEnded) {
  fail_every_allocation(trial("a session", [&] {
    kvtide_session_free(other_);
    other_ = nullptr;
    expect_ok(kvtide_session_new(model_, nullptr, &other_));
  }));
  fail_every_allocation(
      trial("read", [&] { expect_ok(kvtide_session_read(session_, &ids_[20], 5, nullptr, nullptr)); }));
  fail_every_allocation(trial("fork", [&] {
    kvtide_session_free(other_);
    other_ = nullptr;
    expect_ok(kvtide_session_fork(session_, &other_));
  }));
  fail_every_allocation(trial("truncate", [&] {
    expect_ok(kvtide_session_apply(session_, {KVTIDE_TRUNCATE, 7, 0}, nullptr));
  }));
  fail_every_allocation(trial("greedy", [&] {
    std::int32_t token = 0;
    expect_ok(kvtide_session_greedy(session_, &token));
  }));
  fail_every_allocation(trial("encode and decode", [&] {
    std::int32_t ids[64];
    const std::string_view text = "the tide came in and the sand was dark";
    const std::int64_t count = kvtide_encode(model_, text.data(), text.size(), false, ids, 64);
    expect_ok(count);
    char back[64];
    expect_ok(kvtide_decode(model_, ids, static_cast<std::size_t>(count), back, sizeof back));
  }));
}

TEST_F(CInterfaceFaults, SnapshotsAndStatesAreMadeOrMemoryEnded) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path("session.kv");
  fail_every_allocation(trial("save and load", [&] {
    expect_ok(kvtide_session_save(session_, path.c_str()));
    expect_ok(kvtide_session_load(session_, path.c_str()));
  }));
  fail_every_allocation(trial("a state, restored", [&] {
    kvtide_state_free(state_);
    state_ = nullptr;
    expect_ok(kvtide_session_state(session_, &state_));
    expect_ok(kvtide_state_save(state_, path.c_str()));
    expect_ok(kvtide_session_restore(session_, state_));
  }));
  fail_every_allocation(trial("a state, loaded", [&] {
    kvtide_state_free(state_);
    state_ = nullptr;
    expect_ok(kvtide_state_load(path.c_str(), &state_));
  }));
}

}  // namespace
}  // namespace kvtide
