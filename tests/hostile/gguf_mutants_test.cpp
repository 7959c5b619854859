// Thousands of damaged files, every truncation, every single-bit flip: an error or a correct load, never
// anything else.
#include <gtest/gtest.h>

#include <map>

#include "tests/hostile/gguf_mutator.h"
#include "tests/hostile/opening.h"
#include "tests/hostile/sample_files.h"

namespace kvtide::testing {
namespace {

TEST(HostileGgufSamples, LoadWhenTheyAreNotDamaged) {
  EXPECT_TRUE(open_and_walk(every_type_file().bytes).loaded);
  EXPECT_TRUE(open_and_walk(tiny_llama_builder().build().bytes).loaded);
}

TEST(HostileGgufMutants, TwentyThousandGiveATypedErrorOrACorrectLoad) {
  const GgufImage images[] = {every_type_file(), tiny_llama_builder().alignment(32).build()};
  GgufMutator mutator(20250611);
  std::size_t loaded = 0;
  std::map<std::string, int> kinds;  // of refusals, by their words without the numbers
  for (int i = 0; i < 20000; ++i) {
    const Bytes mutant = mutator.mutate(images[i % 4 == 0 ? 1 : 0]);
    const Opening opening = open_and_walk(mutant);
    ASSERT_FALSE(HasFailure()) << "mutant " << i;
    loaded += opening.loaded ? 1 : 0;
    if (opening.loaded) continue;
    std::string words;
    for (const char c : opening.message.substr(opening.message.rfind(": ") + 2))
      if (std::isalpha(static_cast<unsigned char>(c))) words += c;
    ++kinds[words.substr(0, 24)];
  }
  // Damage to names, values and weights leaves a valid file; the rest must reach the checks, and many of
  // them.
  EXPECT_GT(loaded, 2000u);
  EXPECT_LT(loaded, 12000u);
  EXPECT_GT(kinds.size(), 40u);
}

TEST(HostileGgufTruncation, AtEveryByteIsRefusedAndNamesTheEndOfTheFile) {
  const GgufImage image = every_type_file();
  ASSERT_GT(image.bytes.size(), 4000u);
  for (std::size_t size = 0; size < image.bytes.size(); ++size) {
    const Bytes cut(image.bytes.begin(), image.bytes.begin() + static_cast<std::ptrdiff_t>(size));
    const Opening opening = open_and_walk(cut);
    ASSERT_FALSE(opening.loaded) << "cut to " << size;
    ASSERT_NE(opening.message.find("the file ends at byte " + std::to_string(size)), std::string::npos)
        << "cut to " << size << ": " << opening.message;
  }
}

TEST(HostileGgufBitFlips, EveryOneBeforeTheWeightsIsRefusedOrLoads) {
  const GgufImage image = every_type_file();
  const std::size_t tables = image.field(GgufFieldKind::padding, "t.f32").offset;
  std::size_t refused = 0;
  for (std::size_t bit = 0; bit < tables * 8; ++bit) {
    Bytes flipped = image.bytes;
    flipped[bit / 8] ^= std::byte{static_cast<std::uint8_t>(1u << (bit % 8))};
    refused += open_and_walk(flipped).loaded ? 0 : 1;
    ASSERT_FALSE(HasFailure()) << "bit " << bit;
  }
  EXPECT_GT(refused, tables * 2);  // a quarter of the bits, at least, are structure
}

}  // namespace
}  // namespace kvtide::testing
