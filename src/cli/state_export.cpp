// state_export.cpp: rows as plain arrays.
#include "cli/state_files.h"
#include "kvtide/error.h"
namespace kvtide {
void export_state(Snapshot&, const Arguments&) { throw Error(ErrorCode::unsupported, "not yet"); }
}  // namespace kvtide
