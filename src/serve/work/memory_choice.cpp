#include "serve/work/memory_choice.h"

#include <algorithm>
#include <utility>

#include "state/state_object.h"

namespace kvtide::serve {

SessionOptions with_memory(SessionOptions options, const MemoryChoice& choice, std::int64_t context) {
  options.rolling = choice.rolling;
  options.procedural = choice.procedural;
  options.attention_size = choice.attention_size;
  options.context = context;
  options.prefill_chunk = std::min(options.prefill_chunk, context);
  return options;
}

bool is_unedited(const State& state) {
  const Holdings& held = state.internals().kv.holdings();
  return held.segments.size() <= 1 && held.edited == 0;
}

bool keep_alike(const State& a, const State& b) {
  const KvState &one = a.internals().kv, &other = b.internals().kv;
  if (one.attention_size() != other.attention_size() || one.adapting() || other.adapting()) return false;
  const KvSpec &here = one.spec(), &there = other.spec();
  if (here.key_type != there.key_type || here.value_type != there.value_type) return false;
  if (here.rolling != there.rolling || here.procedural.has_value() != there.procedural.has_value())
    return false;
  return !here.procedural || keeps_the_same(*here.procedural, *there.procedural);
}

}  // namespace kvtide::serve
