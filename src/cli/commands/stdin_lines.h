// stdin_lines.h: lines of stdin, one after another, as a person types them or a pipe delivers them.
#pragma once

#include <optional>
#include <string>

namespace kvtide {

class StdinLines {
 public:
  // Without its line feed; nullopt at the end. Throws Error: io, cancelled (Ctrl-C).
  std::optional<std::string> next();

 private:
  std::string pending_;
  bool at_end_ = false;
};

}  // namespace kvtide
