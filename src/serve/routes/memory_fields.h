// memory_fields.h: the field "kv" of a request: with which memory the answer is written, or which state it goes on from.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "serve/http/fields.h"
#include "serve/routes/service.h"

namespace kvtide::serve {

// {"kind": "full"}
// {"kind": "rolling", "window": 1024, "sinks": 4}
// {"kind": "procedural", "budget": "64M", "tokens": 100000, "window": 1024, "sinks": 4}
//   and "pin": "system", or {"first": 0, "last": 48}: positions that stay exact for good
// {"state": 7}: behind the text that this state holds, whose memory it takes over
// Each but the last may say "attention_size": N. What is absent is as the server's flags say. Sets the memory, or the
// starting point, and puts its tokens before the prompt, which must be there. Throws Error: invalid_argument,
// not_found (a state). `before_user`: of a chat, the ids that stand before the user's first words.
void read_memory(const Fields& fields, Service& service, std::size_t model, AnswerSpec& spec,
                 const std::function<std::vector<TokenId>()>& before_user = {});

// "full", "rolling=1024", "procedural=64M", "procedural=64M,pin=system": the default of a server. Throws
// Error(invalid_argument).
MemoryChoice memory_from_text(std::string_view text);

// For people and reports: "full", "rolling", "procedural".
std::string_view kind_of(const State& state);

}  // namespace kvtide::serve
