// packages_at.h: the packages of a language model: one, a folder with meta.yaml (ANEMLL), or a folder that kvtide exported.
//
// Errors: those of reading meta.yaml or the manifest.
// Thread rules: any thread.
#pragma once

#include <string>
#include <vector>

namespace kvtide::coreml {

// By its name and what lies in it; nothing is opened.
bool holds_packages(const std::string& path);
std::vector<std::string> packages_at(const std::string& path);
// The meta.yaml that `path` is or holds; empty: none.
std::string meta_yaml_at(const std::string& path);
// Whether weights are kept in fewer bits than floats.
bool has_compressed_weights(const std::string& path);

}  // namespace kvtide::coreml
