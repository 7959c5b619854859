// heads_file.h: head tables as text: a line per (layer, KV head), columns separated by tabs.
#pragma once

#include <string>
#include <string_view>

#include "kvtide/procedural.h"

namespace kvtide {

// Throws Error: not_found, io, bad_format with the line.
HeadTable read_heads(const std::string& path);
void write_heads(const std::string& path, const HeadTable& table);
std::string heads_text(const HeadTable& table);
HeadTable parse_heads(std::string_view text, const std::string& name);

// The table of a model that this program knows by the SHA-256 of its file; nullptr for others.
const HeadTable* shipped_heads(std::string_view model_hash);

}  // namespace kvtide
