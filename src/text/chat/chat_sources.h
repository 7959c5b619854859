// chat_sources.h: chat templates of our own, by name, for models that bring none.
//
// Thread rules: constants.
#pragma once

#include <span>
#include <string_view>

namespace kvtide {

std::span<const std::string_view> chat_source_names();
// Empty: there is none of that name.
std::string_view chat_source(std::string_view name);

}  // namespace kvtide
