// local_time.h: the date and time of this place, for chat templates that tell it to their model.
#pragma once

#include <ctime>

namespace kvtide {

inline std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm out{};
  ::localtime_r(&now, &out);
  return out;
}

}  // namespace kvtide
