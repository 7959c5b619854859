// compiled_model.h: what a compiled model says of itself: its program's inputs and outputs, the shapes that the compiler wrote
// beside them, and metadata.json.
//
// Errors: bad_format. Thread rules: pure functions.
// Source: folders that Xcode's coremlc wrote.
#pragma once

#include <string>
#include <string_view>

#include "coreml/program/description.h"
#include "coreml/program/mil_reader.h"

namespace kvtide::coreml {

// From the program alone. A dimension that nothing bounds stays kUnknown in `shape`.
Description describe(const MilText& text);

// Adds names, texts and shapes of a metadata.json. `file`: for messages.
void add_metadata(Description& description, std::string_view json, const std::string& file);

}  // namespace kvtide::coreml
