// loading.h: what targets that load a state share.
#pragma once

#include "base/function_ref.h"
#include "fuzz/fuzzing.h"
#include "kvtide/error.h"
#include "state/snapshot.h"
#include "tests/state/snapshot_walk.h"

namespace kvtide::fuzzing {

// A state that can be read, changed, saved and loaded again, or a typed error.
inline void load_or_refuse(FunctionRef<Snapshot()> load) {
  try {
    Snapshot snapshot = load();
    require(testing::walk(snapshot).empty());
  } catch (const Error& error) {
    require(error.code() == ErrorCode::bad_format || error.code() == ErrorCode::unsupported ||
            error.code() == ErrorCode::out_of_memory);
    require(!error.message().empty());
  }
}

}  // namespace kvtide::fuzzing
