// pages.h: the pieces in which the system gives memory and takes it back.
#pragma once

#include <cstdint>

namespace kvtide {

inline constexpr std::int64_t kPage = 4096;  // bytes

constexpr std::int64_t page_floor(std::int64_t bytes) { return bytes / kPage * kPage; }
constexpr std::int64_t page_ceil(std::int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace kvtide
