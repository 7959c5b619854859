// stop_filter.h: text that may be handed out: holds back whatever could still become a stop string.
//
// Ownership: refers to the stop strings, which must outlive it. Thread rules: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvtide {

class StopFilter {
 public:
  explicit StopFilter(const std::vector<std::string>& stops) : stops_(stops) {}

  // Adds text; gives what is certain now. found() tells whether a stop string was completed (text after it is
  // dropped).
  std::string add(std::string_view text) {
    held_ += text;
    std::size_t end = std::string::npos;
    for (const auto& stop : stops_) {
      const std::size_t at = stop.empty() ? std::string::npos : held_.find(stop);
      if (at < end) {
        end = at;
        found_ = &stop;
      }
    }
    if (end != std::string::npos) return take(end);
    std::size_t safe = held_.size();
    for (const auto& stop : stops_)
      for (std::size_t length = std::min(stop.size(), held_.size()); length > 0; --length)
        if (held_.ends_with(std::string_view(stop).substr(0, length))) {
          safe = std::min(safe, held_.size() - length);
          break;
        }
    return take(safe);
  }
  std::string rest() { return take(held_.size()); }
  bool found() const { return found_ != nullptr; }
  const std::string* which() const { return found_; }  // nullptr: none was found

 private:
  std::string take(std::size_t n) {
    std::string out = held_.substr(0, n);
    held_.erase(0, n);
    return out;
  }
  const std::vector<std::string>& stops_;
  std::string held_;
  const std::string* found_ = nullptr;
};

}  // namespace kvtide
