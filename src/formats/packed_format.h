// packed_format.h: what writing and reading a file of packed weights share. The format: docs/checkpoints.md, "Packed weights".
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/pages.h"

namespace kvtide::packed_format {

inline constexpr char kMagic[9] = "KVTPACK\1";
inline constexpr char kEndMagic[9] = "KVTPKEND";
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint64_t kFront = kPage;
inline constexpr std::uint64_t kLargestTable = std::uint64_t{64} << 20;
inline constexpr std::int64_t kLargestExtent = std::int64_t{1} << 40;

// The first bytes of the file; the rest of its first page is zeros.
struct Front {
  char magic[8];
  std::uint32_t version;
  std::uint32_t zero;
};

// The last bytes of the file.
struct End {
  std::uint64_t table_bytes;  // right before the end
  std::uint64_t file_bytes;
  std::uint32_t table_sum;
  std::uint32_t own_sum;  // of the fields above
  char magic[8];
};
inline constexpr std::uint64_t kEnd = sizeof(End);
static_assert(sizeof(Front) == 16 && sizeof(End) == 32);

inline std::uint64_t padded(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace kvtide::packed_format
