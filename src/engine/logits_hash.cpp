// logits_hash.cpp: one number for many logits, so that runs can be compared bit by bit.
#include <bit>

#include "kvtide/session.h"

namespace kvtide {

std::uint64_t hash_logits(std::span<const float> values, std::uint64_t seed) {
  // Four independent chains of multiply and rotate: fast enough to run after every token of a large
  // vocabulary.
  constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15u;
  std::uint64_t chain[4] = {seed + 1, seed + 2, seed + 3, seed + 4};
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint64_t& h = chain[i % 4];
    h = std::rotl((h ^ std::bit_cast<std::uint32_t>(values[i])) * kPrime, 29);
  }
  std::uint64_t hash = values.size() * kPrime;
  for (const std::uint64_t h : chain) hash = std::rotl((hash ^ h) * kPrime, 31);
  return hash ^ (hash >> 32);
}

}  // namespace kvtide
