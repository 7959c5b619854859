// memory_choice.h: what kind of KV memory an answer is written with, and which states serve such an answer.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "kvtide/procedural.h"
#include "kvtide/session.h"
#include "kvtide/state.h"
#include "kvtide/types.h"
#include "state/spec/spec.h"

namespace kvtide::serve {

// Everything is kept unless one of the first two says otherwise; not both.
struct MemoryChoice {
  std::optional<Rolling> rolling;
  std::optional<ProceduralOptions> procedural;
  bool pin_system = false;  // a procedural one keeps what stands before the user's first words exact
  std::optional<std::int64_t> attention_size;
  std::optional<ShadowOptions> shadow =
      {};  // measures a procedural one, which then reads its text from the start

  bool keeps_all() const { return !rolling && !procedural; }
};

// The options of a session with this memory that holds `context` tokens.
SessionOptions with_memory(SessionOptions options, const MemoryChoice& choice, std::int64_t context);

// Whether the rows of a state are those of its tokens, read one behind another: nothing was dropped in between.
bool is_unedited(const State& state);

// What decides that, of one state: its shape and what it attends to. Never the same as another: one that adapts itself.
struct MemoryKind {
  explicit MemoryKind(const State& state);
  MemoryKind(KvSpec of, std::optional<std::int64_t> attended, bool adapts)
      : spec(std::move(of)), attention_size(attended), adapting(adapts) {}

  KvSpec spec;
  std::optional<std::int64_t> attention_size;
  bool adapting = false;
};
bool keep_alike(const MemoryKind& a, const MemoryKind& b);

// Whether a text is the same memory in both, so that one can go on where the other has read: same windows, same
// summaries, same attention.
bool keep_alike(const State& a, const State& b);

}  // namespace kvtide::serve
