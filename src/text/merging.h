// merging.h: repeated merging of neighbours, the loop that byte-level BPE and SentencePiece share.
//
// The pair of lowest rank merges first, the leftmost of equals. Short runs are scanned; long ones use a
// queue, so that the time per symbol hardly grows with the run, and nothing recurses. Thread rules: a
// MergeRun belongs to one call of encode.
#pragma once

#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kvtide/error.h"
#include "text/rank_queue.h"
#include "text/token_index.h"

namespace kvtide {

// The pairs of neighbouring bytes that some token contains. Merging can never join two bytes that are not
// such a pair, so a run may be cut there and its parts merged one by one with the same result.
class BytePairs {
 public:
  void add_all(std::string_view token) {
    for (std::size_t i = 1; i < token.size(); ++i) seen_.set(index(token[i - 1], token[i]));
  }
  bool contains(char left, char right) const { return seen_.test(index(left, right)); }

 private:
  static std::size_t index(char left, char right) {
    return std::size_t{static_cast<unsigned char>(left)} << 8 | static_cast<unsigned char>(right);
  }
  std::bitset<65536> seen_;
};

struct Symbol {
  std::uint32_t begin = 0, end = 0;  // bytes of the text that it covers
  TokenId id = -1;                   // its token, or -1: no token has this text
  bool frozen = false;               // never merges
  std::uint32_t prev = kNone, next = kNone;
  Merge merge;  // of this symbol with `next`; kNoRank: none, or the symbol is gone
  static constexpr std::uint32_t kNone = 0xffffffff;
};

class MergeRun {
 public:
  void clear() { symbols_.clear(); }
  void reserve(std::size_t symbols) { symbols_.reserve(symbols); }
  std::size_t size() const { return symbols_.size(); }

  void add(std::uint32_t begin, std::uint32_t end, TokenId id, bool frozen = false) {
    if (symbols_.size() >= Symbol::kNone)
      throw Error(ErrorCode::bad_text, "text: longer than 4 GiB without a break");
    Symbol symbol;
    symbol.begin = begin;
    symbol.end = end;
    symbol.id = id;
    symbol.frozen = frozen;
    symbols_.push_back(symbol);
  }

  // find(left, right) -> Merge says what two symbols become.
  template <class Find>
  void merge(const Find& find) {
    const auto count = static_cast<std::uint32_t>(symbols_.size());
    for (std::uint32_t i = 0; i < count; ++i) {
      symbols_[i].prev = i == 0 ? Symbol::kNone : i - 1;
      symbols_[i].next = i + 1 == count ? Symbol::kNone : i + 1;
      if (i + 1 < count) rank(i, find);
    }
    if (count <= kShort) {
      merge_short(find);
    } else {
      merge_long(find);
    }
  }

  // What is left, from left to right.
  template <class Visit>
  void visit(const Visit& visit) const {
    if (symbols_.empty()) return;
    for (std::uint32_t i = 0; i != Symbol::kNone; i = symbols_[i].next) visit(symbols_[i]);
  }

 private:
  static constexpr std::uint32_t kShort = 64;

  template <class Find>
  void rank(std::uint32_t i, const Find& find) {
    const Symbol& right = symbols_[symbols_[i].next];
    symbols_[i].merge = symbols_[i].frozen || right.frozen ? Merge{} : find(symbols_[i], right);
  }

  // Merges symbol i with its neighbour and ranks the two pairs that this made, the left one first.
  template <class Find, class Ranked>
  void apply(std::uint32_t i, const Find& find, const Ranked& ranked) {
    Symbol& left = symbols_[i];
    Symbol& right = symbols_[left.next];
    left.end = right.end;
    left.id = left.merge.id;
    left.merge = {};
    left.next = right.next;
    right.merge = {};
    if (left.next != Symbol::kNone) symbols_[left.next].prev = i;
    if (left.prev != Symbol::kNone) {
      rank(left.prev, find);
      ranked(left.prev);
    }
    if (left.next != Symbol::kNone) {
      rank(i, find);
      ranked(i);
    }
  }

  template <class Find>
  void merge_short(const Find& find) {
    if (symbols_.empty()) return;
    while (true) {
      std::uint32_t best = 0;
      for (std::uint32_t i = symbols_[0].next; i != Symbol::kNone; i = symbols_[i].next) {
        if (symbols_[i].merge.rank < symbols_[best].merge.rank) best = i;
      }
      if (symbols_[best].merge.rank == Merge::kNoRank) return;
      apply(best, find, [](std::uint32_t) {});
    }
  }

  // An entry is stale when the pair at its position has another rank by now.
  template <class Find>
  void merge_long(const Find& find) {
    RankQueue queue;
    const auto wait = [&](std::uint32_t i) {
      if (symbols_[i].merge.rank != Merge::kNoRank) queue.push({symbols_[i].merge.rank, i});
    };
    for (std::uint32_t i = 0; i < symbols_.size(); ++i) wait(i);
    while (!queue.empty()) {
      const RankQueue::Entry entry = queue.pop();
      if (symbols_[entry.position].merge.rank == entry.rank) apply(entry.position, find, wait);
    }
  }

  std::vector<Symbol> symbols_;
};

}  // namespace kvtide
