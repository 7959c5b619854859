// No text makes the tokenizer deep: a million characters without a break, on a stack of 256 KiB. That its
// work is linear is counted in tests/text_work.
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>

#include "base/text.h"
#include "tests/text/golden_vocabulary.h"
#include "tests/text/hostile_units.h"

namespace kvtide {
namespace {

void run_on_a_small_stack(std::function<void()> work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  EXPECT_EQ(pthread_attr_setstacksize(&attributes, 256 * 1024), 0);
  pthread_t thread{};
  const auto start = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  EXPECT_EQ(pthread_create(&thread, &attributes, start, &work), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

class SmallStack : public testing::TestWithParam<const char*> {};

// A sanitizer makes this slow, and needs more of the stack at the same depth.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kRepeats = 100'000;
#else
constexpr std::size_t kRepeats = 1'000'000;
#endif

TEST_P(SmallStack, HoldsForAMillionRepeatsOfAnything_WhichComeBack) {
  const Tokenizer tokenizer = read_golden_vocabulary(GetParam()).build();
  for (const char* unit : kHostileUnits) {
    const std::string text = repeated(unit, kRepeats);
    std::vector<TokenId> ids;
    run_on_a_small_stack([&] { ids = tokenizer.encode(text); });
    EXPECT_GT(ids.size(), 0u);
    if (std::string_view(unit) == "a") {
      EXPECT_TRUE(tokenizer.decode(ids) == text);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, SmallStack, testing::ValuesIn(kHostileVocabularies), vocabulary_name);

}  // namespace
}  // namespace kvtide
