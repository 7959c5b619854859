// as_size.h: counts as the standard library wants them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kvtide {

// An index or count that is known not to be negative.
constexpr std::size_t as_size(std::int64_t n) { return static_cast<std::size_t>(n); }

}  // namespace kvtide
