// word_cache.h: the ids of words that one call of encode met before.
//
// Prose repeats its words, and what a word becomes does not depend on its neighbours. Direct-mapped: a word
// takes the place of another with the same hash; long words and words of many ids are not kept.
// Ownership: no memory until it is opened.
// Thread rules: belongs to one call of encode.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

class WordCache {
 public:
  static constexpr std::size_t kLongest = 24, kMostIds = 5;

  // Does nothing for texts that are shorter than filling the cache would pay for.
  void open(std::size_t text_bytes) {
    if (slots_.empty() && text_bytes >= kWorthwhile) slots_.resize(kSlots);
  }
  bool takes(std::string_view word) const {
    return !slots_.empty() && word.size() <= kLongest && !word.empty();
  }

  // The ids of a word that it takes; nullopt: not met, or forgotten.
  std::optional<std::span<const TokenId>> find(std::string_view word) const {
    const Slot& slot = slots_[index_of(word)];
    if (slot.bytes != word.size() || std::memcmp(slot.word.data(), word.data(), word.size()) != 0)
      return std::nullopt;
    return std::span(slot.ids).first(slot.count);
  }
  void keep(std::string_view word, std::span<const TokenId> ids) {
    if (ids.size() > kMostIds) return;
    Slot& slot = slots_[index_of(word)];
    slot.bytes = static_cast<std::uint8_t>(word.size());
    slot.count = static_cast<std::uint8_t>(ids.size());
    std::memcpy(slot.word.data(), word.data(), word.size());
    std::copy(ids.begin(), ids.end(), slot.ids.begin());
  }

 private:
  static constexpr std::size_t kSlots = 1 << 14, kWorthwhile = 1 << 14;
  struct Slot {
    std::array<char, kLongest> word;
    std::array<TokenId, kMostIds> ids;
    std::uint8_t bytes = 0, count = 0;
  };

  static std::uint64_t eight(const char* p) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, p, 8);
    return bits;
  }
  // Words of one to kLongest bytes; the pieces that are mixed may overlap.
  static std::size_t index_of(std::string_view word) {
    const std::size_t n = word.size();
    const char* p = word.data();
    std::uint64_t a = n, b = 0;
    if (n >= 8) {
      a ^= eight(p);
      b = eight(p + n - 8);
      if (n > 16) a += eight(p + 8) * 0x9e3779b97f4a7c15u;
    } else if (n >= 4) {
      std::uint32_t low = 0, high = 0;
      std::memcpy(&low, p, 4);
      std::memcpy(&high, p + n - 4, 4);
      b = std::uint64_t{high} << 32 | low;
    } else {
      b = static_cast<unsigned char>(p[0]) |
          static_cast<std::uint64_t>(static_cast<unsigned char>(p[n / 2])) << 8 |
          static_cast<std::uint64_t>(static_cast<unsigned char>(p[n - 1])) << 16;
    }
    const std::uint64_t mixed = (a * 0xff51afd7ed558ccdu ^ b) * 0xc4ceb9fe1a85ec53u;
    return (mixed ^ mixed >> 29) * 0x9e3779b97f4a7c15u >> 50;
  }
  static_assert(kSlots == std::size_t{1} << (64 - 50));

  std::vector<Slot> slots_;
};

}  // namespace kvtide
