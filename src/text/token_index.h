// token_index.h: the texts of a vocabulary in one arena, and hash tables from text and from pairs to tokens.
//
// A vocabulary is built once and looked up millions of times, so both tables are open addressing over flat
// arrays. A hostile vocabulary that aims at collisions makes a table choose another seed; one that defeats
// every seed is refused.
// Ownership: TokenTexts owns the bytes; a TextIndex refers to tokens by id and is given the texts on each
// call.
// Thread rules: const members from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

// Invariant: text(id) for ids 0 .. size() - 1; the total is below 4 GiB.
class TokenTexts {
 public:
  void reserve(std::size_t tokens, std::size_t bytes);
  void add(std::string_view text);  // becomes the text of id size()
  std::size_t size() const { return begin_.size() - 1; }
  std::string_view operator[](TokenId id) const {
    const auto i = static_cast<std::size_t>(id);
    return {bytes_.data() + begin_[i], begin_[i + 1] - begin_[i]};
  }

 private:
  std::string bytes_;
  std::vector<std::uint32_t> begin_ = {0};
};

// From a text to the lowest id that was inserted with it.
class TextIndex {
 public:
  explicit TextIndex(std::size_t expected);  // tokens that will be inserted; more make it grow
  // Returns false, and keeps the earlier token, when the text is present already.
  bool insert(const TokenTexts& texts, TokenId id);
  std::optional<TokenId> find(const TokenTexts& texts, std::string_view text) const noexcept;
  std::size_t longest() const { return longest_; }  // bytes of the longest text inserted

 private:
  struct Slot {
    std::uint32_t tag = 0;
    TokenId id = -1;
  };
  void rebuild(const TokenTexts& texts, std::size_t slots);
  bool place(const TokenTexts& texts, TokenId id, bool& present);

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
  std::uint64_t seed_ = 1;
  std::size_t longest_ = 0;
};

// What two neighbouring tokens merge into, and how early: lower ranks merge first.
struct Merge {
  std::uint32_t rank = kNoRank;
  TokenId id = -1;
  static constexpr std::uint32_t kNoRank = 0xffffffff;
};

// From (left, right) to their merge. The first insertion of a pair stays.
class PairIndex {
 public:
  explicit PairIndex(std::size_t expected);
  bool insert(TokenId left, TokenId right, Merge merge);
  Merge find(TokenId left, TokenId right) const noexcept;

 private:
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  void rebuild();
  bool place(std::uint64_t key, Merge merge, bool& present);

  std::vector<Slot> slots_;
  std::uint64_t seed_ = 1;
};

}  // namespace kvtide
