#include "serve/work/memory_choice.h"

#include <algorithm>
#include <utility>

#include "state/procedural/stages.h"
#include "state/state_object.h"

namespace kvtide::serve {

SessionOptions with_memory(SessionOptions options, const MemoryChoice& choice, std::int64_t context) {
  options.rolling = choice.rolling;
  options.procedural = choice.procedural;
  options.attention_size = choice.attention_size;
  options.shadow = choice.shadow;
  options.context = context;
  options.prefill_chunk = std::min(options.prefill_chunk, context);
  return options;
}

bool is_unedited(const State& state) {
  const Holdings& held = state.internals().kv.holdings();
  return held.segments.size() <= 1 && held.edited == 0;
}

MemoryKind::MemoryKind(const State& state)
    : spec(state.internals().kv.spec()),
      attention_size(state.internals().kv.attention_size()),
      adapting(state.internals().kv.adapting().has_value()) {}

namespace memory_choice {

bool alike(const KvSpec& a, const KvSpec& b) {
  const RowStage one = window_types(a), other = window_types(b);
  if (one.key_type != other.key_type || one.value_type != other.value_type) return false;
  if (a.rolling != b.rolling || a.procedural.has_value() != b.procedural.has_value()) return false;
  return !a.procedural || keeps_the_same(*a.procedural, *b.procedural);
}

}  // namespace memory_choice

bool keep_alike(const MemoryKind& a, const MemoryKind& b) {
  if (a.attention_size != b.attention_size || a.adapting || b.adapting) return false;
  return memory_choice::alike(a.spec, b.spec);
}

bool keep_alike(const State& a, const State& b) {
  const KvState &one = a.internals().kv, &other = b.internals().kv;
  if (one.attention_size() != other.attention_size() || one.adapting() || other.adapting()) return false;
  return memory_choice::alike(one.spec(), other.spec());
}

}  // namespace kvtide::serve
