// manifest.h: Manifest.json of a package: where the model lies.
//
// Errors: not_found, bad_format (file and key), unsupported (a newer format). Thread rules: pure functions.
// Source: coremltools, modelpackage/src/ModelPackage.cpp.
#pragma once

#include <string>
#include <string_view>

namespace kvtide::coreml {

// The path of the model below the package's folder Data. `file`: for messages.
std::string model_path_of(std::string_view manifest, const std::string& file);

}  // namespace kvtide::coreml
