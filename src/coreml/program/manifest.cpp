#include "coreml/program/manifest.h"

#include "base/json/json_fields.h"
#include "base/json/json_value.h"
#include "base/text.h"
#include "coreml/program/weight_files.h"
#include "kvtide/error.h"

namespace kvtide::coreml {

std::string model_path_of(std::string_view manifest, const std::string& file) {
  const JsonValue json = JsonValue::parse(manifest, file);
  const JsonFields fields(json, file);
  const std::string version = fields.required_text("fileFormatVersion");
  if (version != "1.0.0")
    fields.refuse(version.starts_with("0.") ? ErrorCode::bad_format : ErrorCode::unsupported,
                  cat("'fileFormatVersion' is ", quoted(version), "; 1.0.0 is read"));
  const std::string root = fields.required_text("rootModelIdentifier");
  for (const char c : root)
    if (c < '!' || c > '~') fields.wrong("rootModelIdentifier", "an identifier of printable letters");
  const JsonFields entries = fields.required_child("itemInfoEntries");
  if (!entries.has(root))
    fields.refuse(ErrorCode::bad_format,
                  cat("'rootModelIdentifier' is ", quoted(root), ", which 'itemInfoEntries' does not hold"));
  std::string path = entries.required_child(root).required_text("path");
  check_inside(path, cat(file, ": 'itemInfoEntries.", quoted(root), ".path'"));
  return path;
}

}  // namespace kvtide::coreml
