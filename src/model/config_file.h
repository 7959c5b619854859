// config_file.h: the config.json of a folder as JSON.
#pragma once

#include <string>

#include "base/json/json_value.h"

namespace kvtide {

// Python writes Infinity and NaN, for which JSON has no word; here they are the strings "Infinity", "-Infinity" and "NaN".
// Throws Error: bad_format, not_found, io.
JsonValue read_config_file(const std::string& path);

}  // namespace kvtide
