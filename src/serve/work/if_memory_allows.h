// if_memory_allows.h: work that may be left out: what cannot be kept or counted costs somebody time and nothing else.
#pragma once

#include <new>
#include <utility>

#include "kvtide/error.h"

namespace kvtide::serve {

template <class Work>
void if_memory_allows(Work&& work) {
  try {
    std::forward<Work>(work)();
  } catch (const Error&) {
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace kvtide::serve
