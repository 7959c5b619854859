// snapshot_bytes.h: taking snapshot files apart and putting them together again, with sums that fit, from the
// words of docs/snapshot_format.md.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/checksum.h"

namespace kvtide::testing {

struct SnapshotParts {
  std::uint32_t version = 1;
  std::string header;              // JSON
  std::vector<std::byte> payload;  // as it stands in the file
};

namespace detail {

template <class T>
T number_at(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}
template <class T>
void put_number(std::vector<std::byte>& out, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}
inline void put_bytes(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace detail

inline SnapshotParts take_apart(std::span<const std::byte> file) {
  SnapshotParts parts;
  parts.version = detail::number_at<std::uint32_t>(file, 8);
  const auto length = static_cast<std::size_t>(detail::number_at<std::uint64_t>(file, 16));
  parts.header.assign(reinterpret_cast<const char*>(file.data()) + 24, length);
  const std::size_t begin = (24 + length + 63) / 64 * 64;
  // Behind the payload: four bytes for each MiB of it that was begun, and 48.
  std::size_t chunks = 0;
  while (begin + (chunks << 20) + 4 * chunks + 48 < file.size()) ++chunks;
  const auto rest = file.subspan(begin, file.size() - begin - 48 - 4 * chunks);
  parts.payload.assign(rest.begin(), rest.end());
  return parts;
}

inline std::vector<std::byte> put_together(const SnapshotParts& parts) {
  using detail::put_bytes;
  using detail::put_number;
  std::vector<std::byte> file;
  put_bytes(file, std::as_bytes(std::span("KVTIDE\0\1", 8)));
  put_number(file, parts.version);
  put_number(file, crc32c(std::as_bytes(std::span(parts.header))));
  put_number(file, static_cast<std::uint64_t>(parts.header.size()));
  put_bytes(file, std::as_bytes(std::span(parts.header)));
  file.resize((file.size() + 63) / 64 * 64);
  std::vector<std::byte> sums;
  for (std::size_t at = 0; at < parts.payload.size(); at += std::size_t{1} << 20)
    put_number(
        sums,
        crc32c(
            std::span(parts.payload).subspan(at, std::min(std::size_t{1} << 20, parts.payload.size() - at))));
  Sha256 digest;
  digest.add(file);
  digest.add(sums);
  const auto hash = digest.finish();
  put_bytes(file, parts.payload);
  put_bytes(file, sums);
  put_bytes(file, std::span<const std::byte>(hash));
  put_number(file, static_cast<std::uint64_t>(file.size() + 16));
  put_bytes(file, std::as_bytes(std::span("KVTIDEND", 8)));
  return file;
}

}  // namespace kvtide::testing
