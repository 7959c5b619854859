// Files of packed weights: what was written is read, and whatever else a file holds is refused.
#include "formats/packed_file.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kvtide/error.h"
#include "tests/formats/packed_bytes.h"
#include "tests/formats/temporary_folder.h"

namespace kvtide {
namespace {

using testing::AlignedBytes;
using testing::packed_bytes_of;

// "" when the file is accepted and all its sums are right.
std::string trouble(std::span<const std::byte> bytes) {
  const AlignedBytes aligned(bytes);
  try {
    ThreadPool pool(1);
    PackedFile::from_bytes(aligned.get(), "f").verify(pool);
    return "";
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::bad_format || error.code() == ErrorCode::unsupported)
        << error.message();
    EXPECT_TRUE(error.message().starts_with("f: ")) << error.message();
    return error.message();
  }
}

TEST(PackedFile, GivesBackWhatWasWritten) {
  const testing::TemporaryFolder folder;
  const std::vector<std::size_t> sizes = {5000, 0, 4096, 1};
  const std::string path = folder.write("a.packed", packed_bytes_of(sizes));
  PackedFile moved(path);
  const PackedFile file = std::move(moved);
  EXPECT_EQ(file.binding(), testing::sample_binding());
  ASSERT_EQ(file.matrices().size(), 4u);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const PackedMatrix wanted{
        "blk." + std::to_string(i), DType::q8_0, static_cast<std::int64_t>(i), 3, 5, i % 2 == 1, sizes[i]};
    EXPECT_EQ(file.matrices()[i], wanted);
    ASSERT_EQ(file.bytes(i).size(), sizes[i]);
    EXPECT_EQ((file.bytes(i).data() - file.all_bytes().data()) % 4096, 0);
    for (const std::byte b : file.bytes(i)) ASSERT_EQ(b, static_cast<std::byte>(i + 1));
  }
  ThreadPool pool(2);
  file.verify(pool);
}

TEST(PackedFile, StaysReadable_WhenTheFileIsRemoved) {
  const testing::TemporaryFolder folder;
  const PackedFile file(folder.write("a.packed", packed_bytes_of({5000})));
  std::filesystem::remove(folder.path("a.packed"));
  ThreadPool pool(1);
  file.verify(pool);
}

// Of every byte of the file each of a few bits: front, padding, matrices, table and end.
TEST(PackedFile, AnyChangedByte_IsFound) {
  const std::vector<std::byte> whole = packed_bytes_of({300, 0, 4097});
  ASSERT_EQ(trouble(whole), "");
  for (std::size_t at = 0; at < whole.size(); ++at)
    for (const int bit : {0, 5, 7}) {
      std::vector<std::byte> bytes = whole;
      bytes[at] ^= static_cast<std::byte>(1 << bit);
      ASSERT_NE(trouble(bytes), "") << "byte " << at << " bit " << bit;
    }
}

// Without the sums of matrices: what opening alone has to find.
TEST(PackedFile, AnyOtherLength_IsRefusedWhenItIsOpened) {
  const std::vector<std::byte> whole = packed_bytes_of({300, 4097});
  const auto opens = [](std::span<const std::byte> bytes) {
    const AlignedBytes aligned(bytes);
    try {
      PackedFile::from_bytes(aligned.get(), "f");
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_format) << error.message();
      return false;
    }
  };
  ASSERT_TRUE(opens(whole));
  for (std::size_t size = 0; size < whole.size(); size += size < whole.size() - 400 ? 97 : 1)
    ASSERT_FALSE(opens(std::span(whole).first(size))) << size;
  for (const std::size_t more : {1, 32, 4096}) {
    std::vector<std::byte> longer = whole;
    longer.resize(whole.size() + more);
    EXPECT_FALSE(opens(longer));
    // As a writer that died would leave it where blocks came late: the end is there, something is missing before.
    std::vector<std::byte> hole = whole;
    hole.erase(hole.begin() + 4096, hole.begin() + 4096 + static_cast<std::ptrdiff_t>(more));
    EXPECT_FALSE(opens(hole));
  }
  std::vector<std::byte> zeros(whole.size());
  EXPECT_FALSE(opens(zeros));
}

TEST(PackedFile, AnotherVersion_IsTold) {
  std::vector<std::byte> bytes = packed_bytes_of({300});
  bytes[8] = std::byte{2};
  EXPECT_EQ(trouble(bytes), "f: packed weights of version 2; this program reads version 1");
}

TEST(PackedFile, NamesTheMatrixThatIsDamaged) {
  std::vector<std::byte> bytes = packed_bytes_of({300, 300});
  bytes[4096 * 2 + 17] ^= std::byte{1};
  EXPECT_EQ(trouble(bytes), "f: not a sound file of packed weights: matrix 'blk.1' is damaged");
}

}  // namespace
}  // namespace kvtide
