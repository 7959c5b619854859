// prefix_cache.h: what was read before, kept as KV states, so that a text that begins the same is not read again.
//
// Exact: an entry serves a prompt only as far as their token ids are equal, and forks and truncated states continue with
// the same bits as if everything had been read anew. Where windows have moved on or a recurrence has, it serves as far as
// the nearest checkpoint.
// Ownership: owns its states. Thread rules: one thread, the scheduler's.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvtide/procedural.h"
#include "kvtide/state.h"
#include "serve/work/state_bytes.h"

namespace kvtide::serve {

// How far a procedural memory was from everything, while its first `position` tokens were read and written.
struct MeasuredDrift {
  Drift drift;
  std::int64_t position = 0;
};

class PrefixCache {
 public:
  // Whose text an entry stands for: that of a key, as far as its request went.
  struct Leaver {
    std::string key;
    std::int64_t length = 0;
    std::uint64_t used = 0;
  };
  struct Entry {
    std::int64_t id = 0;
    State state;  // its tokens are the text
    bool by_number =
        false;           // serves only requests that name it: something in it was changed behind its tokens
    bool named = false;  // somebody was told its number: longer texts do not replace it
    bool kept = false;   // is not given up to make room
    std::string key;     // of the request that left it
    std::uint64_t used = 0;  // the larger, the later
    std::int64_t hits = 0;
    std::vector<Leaver> left_by = {};                 // the newest last; one for each key
    std::shared_ptr<const MeasuredDrift> drift = {};  // nullptr: it was not measured
  };
  // Where to go on from: a fork of `entry`, cut to `length` tokens, which it can be.
  struct Hit {
    const Entry* entry = nullptr;
    std::int64_t length = 0;
  };

  // The entry that spares most reading, of those that keep a text as `like` does. At least the last token of the prompt
  // is left to be read, because its logits are wanted.
  Hit find(std::span<const TokenId> prompt, const State& like) const;
  // What requests with this key left last. No entry: nothing.
  Hit newest(const std::string& key) const;
  // Forgets what they left; entries that only they left go. The tokens that these held.
  std::int64_t erase(const std::string& key);
  // A state that goes on from there, with no logits.
  State fork(const Hit& hit);

  // Keeps a state. Entries that it can stand for go; one that can stand for it is only touched. Returns the entry.
  Entry& keep(State state, const std::string& key);
  // Keeps a state beside all others, whatever they hold, and does not replace it by a longer one.
  Entry& keep_apart(State state, const std::string& key, bool by_number);

  // Gives up the entry that was used longest ago, of the key that has most of them. False: there is none that may go.
  bool evict();
  bool drop(std::int64_t id);
  void clear() { entries_.clear(); }
  Entry* at(std::int64_t id);
  void touch(Entry& entry) { entry.used = ++clock_; }  // it goes last

  const std::list<Entry>& entries() const { return entries_; }
  void add_to(StateBytes& bytes) const;

 private:
  Entry& add(State state, const std::string& key);

  std::list<Entry> entries_;
  std::int64_t next_id_ = 1;
  std::uint64_t clock_ = 0;
};

// Tokens that both begin with.
std::int64_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b);

}  // namespace kvtide::serve
