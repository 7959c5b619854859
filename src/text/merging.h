// merging.h: repeated merging of neighbours, the loop that byte-level BPE and SentencePiece share.
//
// The pair of lowest rank merges first, the leftmost of equals. Short runs are scanned; long ones use a
// queue, so that the time per symbol hardly grows with the run, and nothing recurses.
// Thread rules: a MergeRun belongs to one call of encode.
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

// Two neighbours: the units [begin, middle) and [middle, end) of a run, and their tokens.
struct SymbolPair {
  std::uint32_t begin, middle, end;
  TokenId left, right;
};

// One piece of text to merge. It is counted in units, one per byte, and a symbol covers one unit or more.
//
// A symbol that starts at unit b and ends before e has its length at b and at e - 1, so that both neighbours
// are found without links; all else about it is at b. That is 16 bytes per byte of text, which is what a long
// run costs.
class MergeRun {
 public:
  static constexpr std::size_t kMaxUnits = 0x7fffffff;

  std::uint32_t size() const { return static_cast<std::uint32_t>(length_.size()); }  // in units
  bool empty() const { return length_.empty(); }
  void clear() {
    length_.clear();
    id_.clear();
  }

  // Adds a symbol at the end. id -1: no token has this text. A frozen symbol never merges; it has to have an
  // id.
  void add(std::uint32_t units, TokenId id, bool frozen = false) {
    if (units > kMaxUnits - length_.size())
      throw Error(ErrorCode::bad_text, "text: more than 2 GiB without a break");
    const std::size_t begin = length_.size();
    length_.resize(begin + units);
    id_.resize(begin + units);
    length_[begin] = length_[begin + units - 1] = units;
    id_[begin] = frozen ? kFrozen - id : id;
  }

  // find(SymbolPair) -> Merge says what two symbols become.
  template <class Find>
  void merge(const Find& find) {
    rank_.assign(size(), Merge::kNoRank);
    merged_.resize(size());
    std::uint32_t symbols = 0;
    for (std::uint32_t at = 0; at < size(); at += length_[at], ++symbols) rank(at, find);
    if (symbols <= kShort) {
      merge_short(find);
    } else {
      merge_long(find);
    }
  }

  // visit(begin, end, id) for what is left, from left to right.
  template <class Visit>
  void visit(const Visit& visit) const {
    for (std::uint32_t at = 0; at < size(); at += length_[at]) {
      visit(at, at + length_[at], id_[at] <= kFrozen ? kFrozen - id_[at] : id_[at]);
    }
  }

 private:
  static constexpr std::uint32_t kShort = 64;  // symbols
  static constexpr TokenId kFrozen = -2;       // kFrozen - id stands for a frozen symbol

  // Finds what the symbol at `left` and the one behind it make.
  template <class Find>
  void rank(std::uint32_t left, const Find& find) {
    const std::uint32_t right = left + length_[left];
    Merge merge;
    if (right < size() && id_[left] > kFrozen && id_[right] > kFrozen) {
      merge = find(SymbolPair{left, right, right + length_[right], id_[left], id_[right]});
    }
    rank_[left] = merge.rank;
    merged_[left] = merge.id;
  }

  // Merges the symbol at `left` with the one behind it and ranks the two pairs that this makes, the left one
  // first.
  template <class Find, class Ranked>
  void apply(std::uint32_t left, const Find& find, const Ranked& ranked) {
    const std::uint32_t right = left + length_[left];
    const std::uint32_t units = length_[left] + length_[right];
    length_[left] = length_[left + units - 1] = units;
    id_[left] = merged_[left];
    rank_[right] = Merge::kNoRank;
    if (left > 0) {
      const std::uint32_t before = left - length_[left - 1];
      rank(before, find);
      ranked(before);
    }
    rank(left, find);
    ranked(left);
  }

  template <class Find>
  void merge_short(const Find& find) {
    while (true) {
      std::uint32_t best = 0;
      for (std::uint32_t at = 0; at < size(); at += length_[at]) {
        if (rank_[at] < rank_[best]) best = at;
      }
      if (empty() || rank_[best] == Merge::kNoRank) return;
      apply(best, find, [](std::uint32_t) {});
    }
  }

  // An entry is stale when the pair at its position has another rank by now.
  template <class Find>
  void merge_long(const Find& find) {
    RankQueue queue;
    const auto wait = [&](std::uint32_t at) {
      if (rank_[at] != Merge::kNoRank) queue.push({rank_[at], at});
    };
    for (std::uint32_t at = 0; at < size(); at += length_[at]) wait(at);
    while (!queue.empty()) {
      const RankQueue::Entry entry = queue.pop();
      if (rank_[entry.position] == entry.rank) apply(entry.position, find, wait);
    }
  }

  std::vector<std::uint32_t> length_;
  std::vector<TokenId> id_;
  std::vector<std::uint32_t> rank_;  // of the pair that starts here; kNoRank: none, or no symbol starts here
  std::vector<TokenId> merged_;      // what that pair becomes
};

}  // namespace kvtide
