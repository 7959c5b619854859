// split_name.h: file names of the parts of a split GGUF model: STEM-00001-of-00003.gguf. Parts are numbered
// from 1.
//
// Names are made from a path that the user gave, never from what a file says, so that no file can point
// elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvtide {

struct SplitName {
  std::string stem;  // with the folder, without "-00001-of-00003.gguf"
  std::uint64_t number = 1;
  std::uint64_t count = 1;

  // nullopt for a path of any other form.
  static std::optional<SplitName> from_path(std::string_view path);

  // The path of part `part` of the same model.
  std::string sibling(std::uint64_t part) const { return stem + suffix(part, count); }

  // "-00002-of-00003.gguf"
  static std::string suffix(std::uint64_t number, std::uint64_t count);
};

}  // namespace kvtide
