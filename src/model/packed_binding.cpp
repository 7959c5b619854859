#include "model/packed_binding.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/checksum.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "kernels/pack.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::size_t kHashedEnds = std::size_t{64} << 10;
constexpr std::size_t kBlock = 4096, kBlocks = 256;

struct stat state_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    throw Error(ErrorCode::not_found, cat(path, ": cannot look at it: ", std::strerror(errno)));
  return info;
}

void add_samples(Sha256& hash, const std::string& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const std::uint64_t size = bytes.size();
  hash.add(std::as_bytes(std::span(&size, 1)));
  if (size <= kBlock * kBlocks) return hash.add(bytes);
  hash.add(bytes.first(kHashedEnds));
  hash.add(bytes.last(kHashedEnds));
  for (std::size_t i = 0; i < kBlocks; ++i) {
    const std::size_t at = size / kBlocks * i / kBlock * kBlock;
    hash.add(bytes.subspan(at, kBlock));
  }
}

}  // namespace

PackedBinding packed_binding(const Checkpoint& checkpoint) {
  Sha256 hash;
  std::string times;
  for (const std::string& path : checkpoint.weight_files()) {
    const struct stat info = state_of(path);
    times += cat(times.empty() ? "" : " ", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec);
    add_samples(hash, path);
  }
  return {hex(hash.finish()), times, KVTIDE_VERSION, packed_layout().version,
          std::string(packed_layout().kernels)};
}

std::int64_t weight_file_bytes(const Checkpoint& checkpoint) {
  std::int64_t bytes = 0;
  for (const std::string& path : checkpoint.weight_files()) bytes += state_of(path).st_size;
  return bytes;
}

}  // namespace kvtide
