// No text makes the tokenizer slow or deep: a million characters without a break, on a stack of 256 KiB.
#include <gtest/gtest.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <functional>

#include "base/text.h"
#include "tests/text/golden_vocabulary.h"

namespace kvtide {
namespace {

// Runs `work` in a thread with a stack of 256 KiB and gives its own CPU seconds: other programs do not count.
double seconds_on_a_small_stack(std::function<void()> work) {
  struct Run {
    std::function<void()> work;
    double seconds = 0;
  } run{std::move(work)};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  EXPECT_EQ(pthread_attr_setstacksize(&attributes, 256 * 1024), 0);
  pthread_t thread{};
  const auto start = [](void* argument) -> void* {
    auto& own = *static_cast<Run*>(argument);
    const auto now = [] {
      timespec time{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
      return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const double begin = now();
    own.work();
    own.seconds = now() - begin;
    return nullptr;
  };
  EXPECT_EQ(pthread_create(&thread, &attributes, start, &run), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  return run.seconds;
}

std::string repeated(std::string_view text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

class LinearTime : public testing::TestWithParam<const char*> {};

// A sanitizer slows everything down, and not evenly: there the stack and the result count, not the time.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kTimesCount = false;
#else
constexpr bool kTimesCount = true;
#endif
constexpr std::size_t kMillion = kTimesCount ? 1'000'000 : 100'000;
// Texts whose repetition is one word, a run of white space, of markers' first characters, of numbers, or of
// user-defined tokens, in some vocabulary.
constexpr const char* kUnits[] = {"a",        " ",
                                  "\n",       "\t",
                                  "1",        "!",
                                  "\xd0\xb0", "\xe6\xb2\xb3",
                                  "\xcc\x81", "\xf0\x9f\x98\x80",
                                  "<",        "'",
                                  "er",       "=\n",
                                  " a",       "\xe2\x96\x81",
                                  "the ",     "<|im_start|"};

TEST_P(LinearTime, AMillionRepeatsOfAnythingTakeLessThanASecond_AndComeBack) {
  const Tokenizer tokenizer = read_golden_vocabulary(GetParam()).build();
  for (const char* unit : kUnits) {
    const std::string text = repeated(unit, kMillion);
    std::vector<TokenId> ids;
    const double seconds = seconds_on_a_small_stack([&] { ids = tokenizer.encode(text); });
    if (kTimesCount) {
      EXPECT_LT(seconds, 1.0) << quoted(unit);
    }
    EXPECT_GT(ids.size(), 0u);
    if (std::string_view(unit) == "a") {
      EXPECT_TRUE(tokenizer.decode(ids) == text);
    }
  }
}

// At these sizes all working memory is warm. From some size on it comes fresh from the system, page by page,
// at every call: still so much per byte, but a step in the ratio that says nothing about the tokenizer.
TEST_P(LinearTime, TwiceTheTextTakesAtMost2Point3TimesTheTime) {
  if (!kTimesCount) GTEST_SKIP() << "built with a sanitizer";
  const Tokenizer tokenizer = read_golden_vocabulary(GetParam()).build();
  for (const char* unit : {"a", " ", "er", "\xd0\xb0", "the river was "}) {
    const std::string once = repeated(unit, 200'000 / std::string_view(unit).size()), twice = once + once;
    // The least of several runs: what the machine does beside it only ever adds.
    double short_time = 1e9, long_time = 1e9;
    for (int run = 0; run < 40 && (run < 4 || long_time > 2.3 * short_time); ++run) {
      short_time = std::min(short_time, seconds_on_a_small_stack([&] { tokenizer.encode(once); }));
      long_time = std::min(long_time, seconds_on_a_small_stack([&] { tokenizer.encode(twice); }));
    }
    EXPECT_LE(long_time, 2.3 * short_time) << quoted(unit);
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, LinearTime,
                         testing::Values("bpe-gpt-2", "bpe-llama-bpe", "bpe-default", "spm-runs",
                                         "spm-unused"),
                         [](const testing::TestParamInfo<const char*>& parameter) {
                           std::string name = parameter.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace kvtide
