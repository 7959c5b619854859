// prefix_cache.h: what was read before, kept as KV states, so that a text that begins the same is not read again.
//
// Exact: an entry serves a prompt only as far as their token ids are equal, and forks and truncated states continue with
// the same bits as if everything had been read anew.
// Ownership: owns its states. Thread rules: one thread, the scheduler's.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>

#include "kvtide/state.h"
#include "serve/work/state_bytes.h"

namespace kvtide::serve {

class PrefixCache {
 public:
  struct Entry {
    std::int64_t id = 0;
    State state;             // its tokens are the text
    std::string key;         // of the request that left it
    std::uint64_t used = 0;  // the larger, the later
    std::int64_t hits = 0;
  };
  // Where to go on from: a fork of `entry`, cut to `length` tokens.
  struct Hit {
    const Entry* entry = nullptr;
    std::int64_t length = 0;
  };

  // The entry that spares most reading. At least the last token of the prompt is left to be read, because its logits
  // are wanted.
  Hit find(std::span<const TokenId> prompt) const;
  // A state that goes on from there, with no logits.
  State fork(const Hit& hit);

  // Keeps a state. Entries that it can stand for go; one that can stand for it is only touched. Returns the entry.
  Entry& keep(State state, const std::string& key);

  // Gives up the entry that was used longest ago, of the key that has most of them. False: there is none.
  bool evict();
  bool drop(std::int64_t id);
  void clear() { entries_.clear(); }
  Entry* at(std::int64_t id);

  const std::list<Entry>& entries() const { return entries_; }
  void add_to(StateBytes& bytes) const;

 private:
  std::list<Entry> entries_;
  std::int64_t next_id_ = 1;
  std::uint64_t clock_ = 0;
};

// Tokens that both begin with.
std::int64_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b);

}  // namespace kvtide::serve
