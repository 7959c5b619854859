// checksum.h: CRC-32C against accidents in storage, SHA-256 for identity. Pure functions of bytes.
//
// Source: CRC-32C (Castagnoli polynomial 0x1EDC6F41, as in iSCSI, RFC 3720); SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kvtide {

// CRC-32C of `bytes`; `crc` continues an earlier one.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc = 0);
// That of bytes with the sum `first` and, behind them, `second_bytes` bytes with the sum `second`.
std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes);

class Sha256 {
 public:
  Sha256();
  void add(std::span<const std::byte> bytes);
  std::array<std::byte, 32> finish();  // once

 private:
  void block(const std::byte* bytes);
  std::array<std::uint32_t, 8> state_;
  std::array<std::byte, 64> pending_{};
  std::uint64_t total_ = 0;
};

std::string hex(std::span<const std::byte> bytes);

}  // namespace kvtide
