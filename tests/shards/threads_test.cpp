// Folders of shards in several threads and in children of fork(2): the same bits, and nothing waits for ever.
#include <gtest/gtest.h>

#include <memory>

#include "kvtide/shard.h"
#include "tests/base/in_child.h"
#include "tests/base/thread_sanitizer.h"
#include "tests/base/together.h"
#include "tests/kernels/same_bits.h"
#include "tests/shards/shard_samples.h"

namespace kvtide {
namespace {

using testing::in_child;
using testing::same_bits;

class ShardThreads : public ::testing::Test {
 protected:
  const testing::ShardSample sample_{testing::SampleModel{}};

  static std::vector<float> answer(const ShardFolder& folder) {
    const testing::HostCall call(folder, 0, 2, 2, 7);
    const Shard attention = folder.open("attention.0");
    ShardState state = attention.make_state();
    return folder.open("mlp.0").predict(attention.predict(call.inputs(), state));
  }
};

TEST_F(ShardThreads, EachWithItsOwnFolderOfTheSameFilesGetTheSameBits) {
  const auto wanted = answer(ShardFolder(sample_.path(), {.threads = 1}));
  const auto body = [&] {
    EXPECT_TRUE(same_bits(answer(ShardFolder(sample_.path(), {.threads = 2})), wanted));
  };
  testing::run_together("shards in four threads", {body, body, body, body});
}

TEST_F(ShardThreads, OfAParentAreReplacedInItsChild_WhichMayUseAndCloseItsFolder) {
  // ThreadSanitizer ends a child of a process with threads that starts one.
  auto folder =
      std::make_unique<ShardFolder>(sample_.path(), ShardOptions{.threads = kThreadSanitizer ? 1 : 3});
  const auto wanted = answer(*folder);
  EXPECT_EQ(in_child([&] {
              const bool same = same_bits(answer(*folder), wanted);
              folder.reset();
              return same ? "" : "other bits";
            }),
            "");
  EXPECT_TRUE(same_bits(answer(*folder), wanted));
}

TEST_F(ShardThreads, OfAParentAreNotWaitedForInItsChild) {
  auto folder = std::make_unique<ShardFolder>(sample_.path(), ShardOptions{.threads = 3});
  auto shard = std::make_unique<Shard>(folder->open("mlp.0"));
  EXPECT_EQ(in_child([&] {
              folder.reset();
              shard.reset();  // shares the threads
              return "";
            }),
            "");
}

}  // namespace
}  // namespace kvtide
