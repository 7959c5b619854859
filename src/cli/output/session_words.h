// session_words.h: what kind of KV memory a session has, in words.
#pragma once

#include <cstdint>
#include <string>

#include "kvtide/session.h"

namespace kvtide {

// Tokens that are held when the memory is full: the window and its sinks, or the context.
std::int64_t most_held(const Session& session);

// "rolling: 4 sinks and the newest 1,024; attention size 128": what is not as usual; empty when everything
// is.
std::string memory_words(const Session& session);
// The same for someone who does not know how a procedural memory is made: only its limit.
std::string short_memory_words(const Session& session);

}  // namespace kvtide
