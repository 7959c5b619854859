// packages_manifest.h: manifest.json of a folder that `kvtide coreml export` wrote: its packages in the order in which they run.
//
// Errors: not_found, bad_format, unsupported.
// Thread rules: any thread.
#pragma once

#include <string>
#include <vector>

namespace kvtide::coreml {

inline constexpr const char* kPackagesManifest = "manifest.json";

// Names are those of folders beside the manifest.
std::string packages_text(const std::vector<std::string>& names);
std::vector<std::string> read_packages(const std::string& folder);
// Whether `path` is a folder of packages, and no package itself.
bool is_packages_folder(const std::string& path);

}  // namespace kvtide::coreml
