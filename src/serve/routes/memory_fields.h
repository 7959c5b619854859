// memory_fields.h: the field "kv" of a request: with which memory the answer is written, or which state it goes on from.
#pragma once

#include <string_view>

#include "serve/http/fields.h"
#include "serve/routes/service.h"

namespace kvtide::serve {

// {"kind": "full"}
// {"kind": "rolling", "window": 1024, "sinks": 4}
// {"kind": "procedural", "budget": "64M", "tokens": 100000, "window": 1024, "sinks": 4}
// {"state": 7}: behind the text that this state holds, whose memory it takes over
// Each but the last may say "attention_size": N. What is absent is as the server's flags say. Sets the memory, or the
// starting point, and puts its tokens before the prompt, which must be there. Throws Error: invalid_argument,
// not_found (a state).
void read_memory(const Fields& fields, Service& service, std::size_t model, AnswerSpec& spec);

// "full", "rolling=1024", "procedural=64M": the default of a server. Throws Error(invalid_argument).
MemoryChoice memory_from_text(std::string_view text);

// For people and reports: "full", "rolling", "procedural".
std::string_view kind_of(const State& state);

}  // namespace kvtide::serve
