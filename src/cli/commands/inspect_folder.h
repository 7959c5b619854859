// inspect_folder.h: what `kvtide inspect` says of a Hugging Face folder, and what it says of any model's
// memory.
#pragma once

#include <optional>
#include <string>

#include "base/json/json.h"
#include "cli/arguments/arguments.h"
#include "model/config/config.h"

namespace kvtide {

int inspect_folder(const Arguments& arguments);

// kv_bytes_per_token, kv_bytes and, without a config, kv_unknown.
void set_memory(Json& result, const std::optional<ModelConfig>& config, const std::string& why_not);
std::string memory_text(const std::optional<ModelConfig>& config, const std::string& why_not);

// A name as it is, but for what a terminal could take for a command.
std::string shown(std::string_view name);
std::string column(std::string text, std::size_t width);

}  // namespace kvtide
