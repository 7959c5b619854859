// out_of_memory.h: the edge of the library, where std::bad_alloc becomes an Error.
//
// Inside, whatever allocates may throw std::bad_alloc. A public function that lets it out runs its body through
// or_out_of_memory, or ends in a handler that calls throw_out_of_memory.
#pragma once

#include <new>
#include <utility>

#include "kvtide/error.h"

namespace kvtide {

// The message is short enough for a string to hold without memory of its own.
[[noreturn]] inline void throw_out_of_memory() { throw Error(ErrorCode::out_of_memory, "out of memory"); }

template <class Call>
decltype(auto) or_out_of_memory(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (const std::bad_alloc&) {
    throw_out_of_memory();
  }
}

}  // namespace kvtide
