// limits.h: what a template may take. A template is a program that came with a file.
#pragma once

#include <cstddef>

namespace kvtide::jinja {

struct RenderLimits {
  std::size_t steps = 5'000'000;  // expressions, statements, items gone through
  std::size_t bytes = std::size_t{512}
                      << 20;  // of all values and all output together, also those that are gone
};

inline constexpr std::size_t kMostTemplateBytes = std::size_t{1} << 20;

}  // namespace kvtide::jinja
