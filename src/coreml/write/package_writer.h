// package_writer.h: writes a .mlpackage.
//
// The same package gives the same bytes: identifiers of the manifest come from the contents. The folder appears when all of
// it is written. What is written: the description, the program or the stages, and their weights; path and identity of the
// package given do not matter.
// Errors: invalid_argument (the folder is there already), unsupported (a type that the format has no field for), io.
// Thread rules: any thread.
#pragma once

#include <string>

#include "coreml/program/package.h"

namespace kvtide::coreml {

// `replaces`: a folder that is there already.
void write_package(const Package& package, const std::string& path, bool replaces = false);

}  // namespace kvtide::coreml
