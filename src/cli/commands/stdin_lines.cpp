#include "cli/commands/stdin_lines.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "cli/commands/interrupt.h"
#include "kvtide/error.h"

namespace kvtide {

std::optional<std::string> StdinLines::next() {
  for (;;) {
    const std::size_t end = pending_.find('\n');
    if (end != pending_.npos || (at_end_ && !pending_.empty())) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end == pending_.npos ? end : end + 1);
      if (line.ends_with('\r')) line.pop_back();
      return line;
    }
    if (at_end_) return std::nullopt;
    wait_for_input(STDIN_FILENO);
    stop_if_interrupted("stopped; the conversation ends here");
    char piece[4096];
    const ssize_t got = ::read(STDIN_FILENO, piece, sizeof piece);
    stop_if_interrupted("stopped; the conversation ends here");
    if (got < 0 && errno != EINTR)
      throw Error(ErrorCode::io, cat("stdin: read failed: ", std::strerror(errno)));
    if (got == 0) at_end_ = true;
    if (got > 0) pending_.append(piece, static_cast<std::size_t>(got));
  }
}

}  // namespace kvtide
