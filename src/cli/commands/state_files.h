// state_files.h: what `kvtide state` does with snapshots, one function and one file per action.
#pragma once

#include <string>

#include "cli/arguments/arguments.h"
#include "state/snapshot.h"

namespace kvtide {

void print_state_info(const Snapshot& snapshot, const std::string& path, bool json);

// True when both hold the same: spec, tokens, rows, logits.
bool print_state_diff(Snapshot& first, Snapshot& second, const Arguments& arguments);

// Rows as plain arrays in a layout that other runtimes know: a safetensors file, or a folder of .npy files.
void export_state(Snapshot& snapshot, const Arguments& arguments);

// A safetensors file in one of those layouts as a snapshot that belongs to the model of `base` and has its
// shape.
void import_state(Snapshot base, const Arguments& arguments);

}  // namespace kvtide
