// live_memory.h: the KV memory of a run or chat, as its flags want it: snapshots, overflow, strategy; and
// what happened to it, for the report.
//
// Ownership: refers to the arguments and the session. Thread rules: those of Session.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/arguments/arguments.h"
#include "cli/output/memory_event.h"
#include "cli/output/procedural_report.h"
#include "kvtide/session.h"

namespace kvtide {

class LiveMemory {
 public:
  LiveMemory(const Arguments& arguments, Session& session);

  // --load-state; without it nothing. Throws Error when the file cannot be used, or when flags ask for
  // another kind of memory than it holds.
  void load();
  void load(const std::string& path);
  std::int64_t loaded_tokens() const { return loaded_; }

  // Before a prompt is read: throws Error(context_full, invalid_argument, io) when what the flags ask for
  // cannot be done with so many tokens, a snapshot that has no room included.
  void check_prompt(std::int64_t tokens) const;
  // A prompt may be longer than what fits.
  bool refills() const { return arguments_.memory.overflow == Overflow::refill; }
  // The prompt has been read: the strategy compacts and sets the attention size.
  void prompt_read();

  // Makes room in a full session; false when no flag says how.
  bool make_room();
  std::int64_t refill_count() const {
    return refill_count_;
  }  // so far: positions before one mean nothing after it
  // Between chunks and tokens: a snapshot when --save-every says so. One that cannot be written is said once.
  void pause();
  // --save-state, at the end. Throws Error(io).
  void save();
  void save(const std::string& path);
  // Forgets the text and clears the session.
  void forget();

  // What happened. Rolling, and what a procedural memory did, are summed up in one event, counted until now.
  std::vector<MemoryEvent> events();
  double saving_seconds() const { return saving_; }  // spent in pause()

 private:
  void transition(const Transition& change);
  void note_attention();  // what an attention size that adapts itself did since the last call

  const Arguments& arguments_;
  Session& session_;
  std::vector<MemoryEvent> events_;
  SealLog log_;
  std::int64_t loaded_ = 0;
  std::int64_t pinned_ = 0;            // tokens that a refill always keeps
  std::int64_t forgotten_before_ = 0;  // positions that a window had passed when the session was loaded
  std::int64_t refill_count_ = 0;
  std::size_t attention_noted_ = 0;  // changes that are events by now
  std::size_t expanded_ = 0;         // steps of the strategy that are done
  Pos saved_at_ = 0;
  double saving_ = 0.0;
  bool complained_ = false;
};

}  // namespace kvtide
