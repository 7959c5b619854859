#include "coreml/decode/packages_manifest.h"

#include <filesystem>

#include "base/json/json.h"
#include "base/json/json_fields.h"
#include "base/text.h"
#include "formats/text_file.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace packages_manifest_details {

constexpr const char* kFormat = "kvtide-coreml";
constexpr std::size_t kMostPackages = 4096;

}  // namespace packages_manifest_details

using namespace packages_manifest_details;

std::string packages_text(const std::vector<std::string>& names) {
  Json out = Json::object();
  out.set("format", kFormat).set("version", 1).set("packages", names);
  return out.text() + "\n";
}

std::vector<std::string> read_packages(const std::string& folder) {
  const std::string path = cat(folder, "/", kPackagesManifest);
  const JsonValue json = JsonValue::parse(read_whole_text(path), path);
  const JsonFields fields(json, path);
  fields.one_of("format", {kFormat});
  if (fields.count("version", 1, INT32_MAX) != 1)
    fields.refuse(ErrorCode::unsupported, "is of a later version of kvtide");
  std::vector<std::string> paths;
  for (const std::string& name : fields.texts("packages")) {
    if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos)
      fields.refuse(ErrorCode::bad_format, cat(quoted(name), " is no name of a package beside it"));
    paths.push_back(cat(folder, "/", name));
  }
  if (paths.empty() || paths.size() > kMostPackages)
    fields.refuse(ErrorCode::bad_format,
                  cat("names ", paths.size(), " packages; 1 to ", kMostPackages, " can be run"));
  return paths;
}

bool is_packages_folder(const std::string& path) {
  const std::string manifest = (std::filesystem::path(path) / kPackagesManifest).string();
  if (!std::filesystem::exists(manifest)) return false;
  // A folder of shards has a manifest.json as well, and where a file system knows no capitals a package has one.
  const JsonValue json = JsonValue::parse(read_whole_text(manifest), manifest);
  const JsonValue* format = json.find("format");
  return format != nullptr && format->text() != nullptr && *format->text() == kFormat;
}

}  // namespace kvtide::coreml
