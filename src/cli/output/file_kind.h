// file_kind.h: what a file looks like by its first bytes, for messages about files that were taken for others.
#pragma once

#include <string>

namespace kvtide {

// A place for a snapshot: where no file is yet, or an older snapshot, or an empty file. Throws Error: io (no file can be
// made there), bad_format (another file lies there, which a snapshot must not replace).
void check_snapshot_place(const std::string& path);

// Throw Error(bad_format) where the file is known to be something else: "is an HTML page, not a model; ...". Anything
// unknown is left to those who read it.
void check_is_model(const std::string& path);
void check_is_snapshot(const std::string& path);

}  // namespace kvtide
