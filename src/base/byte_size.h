// byte_size.h: sizes as people write them: "64M", "1.5 GiB", "4096".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvtide {

// Bytes; a unit is a power of 1,024: K, M, G or T, alone or with B or iB behind it. nullopt: no size, or one of more
// than 2^50 bytes.
std::optional<std::int64_t> parse_byte_size(std::string_view text);

}  // namespace kvtide
