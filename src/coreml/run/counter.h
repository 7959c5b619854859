// counter.h: a state of one element that counts the tokens read (pastLen).
//
// Errors: unsupported names a counter whose type cannot say the number: an f16 holds every whole number up to 2,048 only.
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kvtide/coreml.h"

namespace kvtide::coreml {

bool is_counter(std::span<const std::int64_t> shape);
void set_counter(CoremlArray& counter, std::string_view name, std::int64_t count);

}  // namespace kvtide::coreml
