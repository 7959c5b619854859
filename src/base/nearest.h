// nearest.h: which of several words the user probably meant.
#pragma once

#include <span>
#include <string_view>

namespace kvtide {

// Letters to insert, remove, replace or swap with their neighbour to turn one word into the other.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The nearest word; empty when none is near enough to be meant.
std::string_view nearest(std::string_view word, std::span<const std::string_view> words);

}  // namespace kvtide
