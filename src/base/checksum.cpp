#include "base/checksum.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace kvtide {
namespace {

// Fractional parts of the cube roots of the first 64 primes.
constexpr std::uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t big_endian(const std::byte* p) {
  std::uint32_t value = 0;
  std::memcpy(&value, p, 4);
  return __builtin_bswap32(value);
}

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // the highest bit is that of x^0

#if defined(__x86_64__)
// The SSE4.2 instructions, part of the x86-64-v2 baseline, compute exactly this polynomial.
std::uint64_t crc_of_word(std::uint64_t state, std::uint64_t word) { return _mm_crc32_u64(state, word); }
std::uint32_t crc_of_byte(std::uint32_t state, std::uint8_t byte) { return _mm_crc32_u8(state, byte); }
#else
constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0u);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kCrcTable = crc_table();

std::uint32_t crc_of_byte(std::uint32_t state, std::uint8_t byte) {
  return state >> 8 ^ kCrcTable[(state ^ byte) & 255];
}
std::uint64_t crc_of_word(std::uint64_t state, std::uint64_t word) {
  auto crc = static_cast<std::uint32_t>(state);
  for (int i = 0; i < 8; ++i) crc = crc_of_byte(crc, static_cast<std::uint8_t>(word >> 8 * i));
  return crc;
}
#endif

// a times b, modulo the polynomial.
constexpr std::uint32_t product(std::uint32_t a, std::uint32_t b) {
  std::uint32_t out = 0;
  for (std::uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    if (a & bit) out ^= b;
    b = b >> 1 ^ (b & 1 ? kPolynomial : 0u);
  }
  return out;
}

// A state that moves over n bytes of zeros is multiplied by x^(8 n): this is that of 1 << i bytes.
constexpr std::array<std::uint32_t, 64> zero_powers() {
  std::array<std::uint32_t, 64> powers{1u << (31 - 8)};
  for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = product(powers[i - 1], powers[i - 1]);
  return powers;
}
constexpr std::array<std::uint32_t, 64> kZeroPowers = zero_powers();

// An instruction has to wait for the one before, three cycles, and one begins in each cycle: three lanes side by side take
// as long as one. A lane's state is put behind another's by moving that over as many zeros.
constexpr std::size_t kLaneBits = 9, kLane = std::size_t{1} << kLaneBits;  // bytes

using ZeroTables = std::array<std::array<std::uint32_t, 256>, 4>;
constexpr ZeroTables zero_tables() {
  ZeroTables tables{};
  for (std::size_t place = 0; place < 4; ++place)
    for (std::size_t bit = 0; bit < 8; ++bit) {
      const std::uint32_t moved = product(kZeroPowers[kLaneBits], 1u << (8 * place + bit));
      for (std::size_t byte = 0; byte < 256; ++byte)
        if (byte >> bit & 1) tables[place][byte] ^= moved;
    }
  return tables;
}
constexpr ZeroTables kZeros = zero_tables();

std::uint32_t over_zeros(std::uint32_t state) {
  return kZeros[0][state & 255] ^ kZeros[1][state >> 8 & 255] ^ kZeros[2][state >> 16 & 255] ^
         kZeros[3][state >> 24];
}

// Of three lanes.
std::uint32_t crc_of_lanes(std::uint32_t state, const std::byte* bytes) {
  std::uint64_t a = state, b = 0, c = 0;
  for (std::size_t i = 0; i < kLane; i += 8) {
    std::uint64_t words[3];
    for (std::size_t lane = 0; lane < 3; ++lane) std::memcpy(&words[lane], bytes + lane * kLane + i, 8);
    a = crc_of_word(a, words[0]);
    b = crc_of_word(b, words[1]);
    c = crc_of_word(c, words[2]);
  }
  const std::uint32_t ab = over_zeros(static_cast<std::uint32_t>(a)) ^ static_cast<std::uint32_t>(b);
  return over_zeros(ab) ^ static_cast<std::uint32_t>(c);
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t crc) {
  std::uint64_t state = ~crc;
  std::size_t i = 0;
  for (; i + 3 * kLane <= bytes.size(); i += 3 * kLane)
    state = crc_of_lanes(static_cast<std::uint32_t>(state), bytes.data() + i);
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    state = crc_of_word(state, word);
  }
  auto tail = static_cast<std::uint32_t>(state);
  for (; i < bytes.size(); ++i) tail = crc_of_byte(tail, static_cast<std::uint8_t>(bytes[i]));
  return ~tail;
}

std::uint32_t crc32c_joined(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
  for (std::size_t i = 0; second_bytes != 0; ++i, second_bytes >>= 1)
    if (second_bytes & 1) first = product(kZeroPowers[i], first);
  return first ^ second;
}

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {
}

void Sha256::block(const std::byte* bytes) {
  std::uint32_t w[64];
  for (int i = 0; i < 16; ++i) w[i] = big_endian(bytes + 4 * i);
  for (int i = 16; i < 64; ++i) {
    const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int i = 0; i < 64; ++i) {
    const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::uint32_t added[8] = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state_[i] += added[i];
}

void Sha256::add(std::span<const std::byte> bytes) {
  std::size_t held = total_ % 64;
  total_ += bytes.size();
  while (!bytes.empty()) {
    if (held == 0 && bytes.size() >= 64) {
      block(bytes.data());
      bytes = bytes.subspan(64);
      continue;
    }
    const std::size_t take = std::min(bytes.size(), 64 - held);
    std::memcpy(pending_.data() + held, bytes.data(), take);
    bytes = bytes.subspan(take);
    held = (held + take) % 64;
    if (held == 0) block(pending_.data());
  }
}

std::array<std::byte, 32> Sha256::finish() {
  const std::uint64_t bits = total_ * 8;
  std::byte padding[72] = {std::byte{0x80}};
  const std::size_t zeros =
      (119 - total_ % 64) % 64;  // after the 0x80, up to 8 bytes before the end of a block
  for (std::size_t i = 0; i < 8; ++i) padding[1 + zeros + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  add({padding, 1 + zeros + 8});
  std::array<std::byte, 32> digest;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::uint32_t word = __builtin_bswap32(state_[i]);
    std::memcpy(digest.data() + 4 * i, &word, 4);
  }
  return digest;
}

std::string hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[static_cast<unsigned>(byte) >> 4];
    text += kDigits[static_cast<unsigned>(byte) & 15u];
  }
  return text;
}

}  // namespace kvtide
