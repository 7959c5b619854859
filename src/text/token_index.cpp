#include "text/token_index.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kvtide/error.h"

namespace kvtide {
namespace {

// Longest run of occupied slots that an insertion accepts. At half load honest vocabularies stay below 60.
constexpr std::size_t kMaxProbe = 256;
constexpr std::uint64_t kMaxSeed = 8;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t hash_text(std::string_view text, std::uint64_t seed) noexcept {
  constexpr std::uint64_t kA = 0x9e3779b97f4a7c15, kB = 0xd6e8feb86659fd93;
  std::uint64_t hash = mix(seed ^ kA, kB) ^ text.size();
  const char* at = text.data();
  std::size_t left = text.size();
  for (; left >= 8; at += 8, left -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    hash = mix(hash ^ word ^ kA, seed ^ kB);
  }
  std::uint64_t word = 0;
  if (left >= 4) {  // two loads that may overlap: no loop over the tail
    std::uint32_t head = 0, tail = 0;
    std::memcpy(&head, at, 4);
    std::memcpy(&tail, at + left - 4, 4);
    word = std::uint64_t{head} << 32 | tail;
  } else if (left > 0) {
    const auto byte = [&](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(at[i])}; };
    word = byte(0) | byte(left / 2) << 8 | byte(left - 1) << 16;
  }
  return mix(hash ^ word, seed * kA ^ kB);
}

std::size_t slots_for(std::size_t expected) { return std::bit_ceil(std::max<std::size_t>(16, expected * 2)); }

[[noreturn]] void refuse_collisions(const char* what) {
  throw Error(ErrorCode::bad_format, std::string("vocabulary: the ") + what +
                                         " were chosen to collide in a hash table; no real vocabulary does");
}

}  // namespace

void TokenTexts::reserve(std::size_t tokens, std::size_t bytes) {
  begin_.reserve(tokens + 1);
  bytes_.reserve(bytes);
}

void TokenTexts::add(std::string_view text) {
  if (text.size() > 0xffffffffu - bytes_.size()) {
    throw Error(ErrorCode::bad_format, "vocabulary: the texts of the tokens need more than 4 GiB");
  }
  bytes_ += text;
  begin_.push_back(static_cast<std::uint32_t>(bytes_.size()));
}

TextIndex::TextIndex(std::size_t expected) : slots_(slots_for(expected)) {}

bool TextIndex::place(const TokenTexts& texts, TokenId id, bool& present) {
  const std::string_view text = texts[id];
  const std::uint64_t hash = hash_text(text, seed_);
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t probe = 0; probe < kMaxProbe; ++probe) {
    Slot& slot = slots_[(hash + probe) & mask];
    if (slot.id < 0) {
      slot = {tag, id};
      ++count_;
      return true;
    }
    if (slot.tag == tag && texts[slot.id] == text) {
      present = true;
      return true;
    }
  }
  return false;
}

void TextIndex::rebuild(const TokenTexts& texts, std::size_t slots) {
  std::vector<TokenId> ids;
  for (const Slot& slot : slots_) {
    if (slot.id >= 0) ids.push_back(slot.id);
  }
  for (; seed_ <= kMaxSeed; ++seed_) {
    slots_.assign(slots, Slot{});
    count_ = 0;
    bool present = false;
    if (std::all_of(ids.begin(), ids.end(), [&](TokenId id) { return place(texts, id, present); })) return;
  }
  refuse_collisions("tokens");
}

bool TextIndex::insert(const TokenTexts& texts, TokenId id) {
  if ((count_ + 1) * 2 > slots_.size()) rebuild(texts, slots_.size() * 2);
  bool present = false;
  while (!place(texts, id, present)) {
    ++seed_;
    rebuild(texts, slots_.size());
  }
  longest_ = std::max(longest_, texts[id].size());
  return !present;
}

std::optional<TokenId> TextIndex::find(const TokenTexts& texts, std::string_view text) const noexcept {
  if (text.size() > longest_) return std::nullopt;
  const std::uint64_t hash = hash_text(text, seed_);
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t probe = 0; probe < kMaxProbe; ++probe) {
    const Slot& slot = slots_[(hash + probe) & mask];
    if (slot.id < 0) break;
    if (slot.tag == tag && texts[slot.id] == text) return slot.id;
  }
  return std::nullopt;
}

PairIndex::PairIndex(std::size_t expected) : slots_(slots_for(expected)) {}

namespace {
std::uint64_t pair_key(TokenId left, TokenId right) noexcept {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}
std::uint64_t hash_pair(std::uint64_t key, std::uint64_t seed) noexcept {
  return mix(key ^ seed * 0x9e3779b97f4a7c15, 0xd6e8feb86659fd93 + (seed << 1));
}
}  // namespace

bool PairIndex::place(std::uint64_t key, Merge merge, bool& present) {
  const std::uint64_t hash = hash_pair(key, seed_);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t probe = 0; probe < kMaxProbe; ++probe) {
    Slot& slot = slots_[(hash + probe) & mask];
    if (slot.key == kEmpty) {
      slot = {key, merge};
      return true;
    }
    if (slot.key == key) {
      present = true;
      return true;
    }
  }
  return false;
}

void PairIndex::rebuild() {
  const std::vector<Slot> old = slots_;
  while (++seed_ <= kMaxSeed) {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    bool present = false;
    const auto keep = [&](const Slot& slot) {
      return slot.key == kEmpty || place(slot.key, slot.merge, present);
    };
    if (std::all_of(old.begin(), old.end(), keep)) return;
  }
  refuse_collisions("merges");
}

bool PairIndex::insert(TokenId left, TokenId right, Merge merge) {
  bool present = false;
  while (!place(pair_key(left, right), merge, present)) rebuild();
  return !present;
}

Merge PairIndex::find(TokenId left, TokenId right) const noexcept {
  const std::uint64_t key = pair_key(left, right);
  const std::size_t mask = slots_.size() - 1;
  const std::uint64_t hash = hash_pair(key, seed_);
  for (std::size_t probe = 0; probe < kMaxProbe; ++probe) {
    const Slot& slot = slots_[(hash + probe) & mask];
    if (slot.key == key) return slot.merge;
    if (slot.key == kEmpty) break;
  }
  return {};
}

}  // namespace kvtide
