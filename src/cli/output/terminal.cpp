#include "cli/output/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/text.h"

namespace kvtide {
namespace {

constexpr std::string_view kWipe = "\r\x1b[K";

// 0, or the errno of the write that failed.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(fd, text.data(), text.size());
    if (done >= 0)
      text.remove_prefix(static_cast<std::size_t>(done));
    else if (errno != EINTR)
      return errno;
  }
  return 0;
}

}  // namespace

void write_result(std::string_view text) {
  const int failure = write_all(STDOUT_FILENO, text);
  if (failure == EPIPE) throw ReaderGone();
  if (failure != 0) throw Error(ErrorCode::io, cat("stdout: write failed: ", std::strerror(failure)));
}

// Nobody could be told that stderr fails.
void say(std::string_view line) { static_cast<void>(write_all(STDERR_FILENO, cat(line, "\n"))); }

bool can_redraw() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::strcmp(term, "dumb") != 0);
}

std::size_t terminal_width() {
  constexpr std::size_t kUsual = 80;
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : kUsual;
}

bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }

void prompt_on_terminal(std::string_view text) { static_cast<void>(write_all(STDERR_FILENO, text)); }

void redraw(std::string_view line) {
  // A line that wraps could not be wiped again.
  line = line.substr(0, terminal_width() - 1);
  static_cast<void>(write_all(STDERR_FILENO, cat(kWipe, line)));
}

std::string number_text(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

std::string bytes_text(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes < 1024) return cat(bytes, " B");
  if (value < 1024.0 * 1024.0) return number_text(value / 1024.0, 1) + " KiB";
  if (value < 1024.0 * 1024.0 * 1024.0) return number_text(value / (1024.0 * 1024.0), 1) + " MiB";
  return number_text(value / (1024.0 * 1024.0 * 1024.0), 2) + " GiB";
}

std::string count_text(std::int64_t count) {
  const std::string digits = std::to_string(count);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && digits[i - 1] != '-' && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string time_text(double seconds) {
  if (!(seconds >= 0.0)) return "?";
  if (seconds < 1.0) return number_text(seconds * 1e3, seconds < 0.01 ? 1 : 0) + " ms";
  if (seconds < 100.0) return number_text(seconds, 1) + " s";
  const auto whole = static_cast<std::int64_t>(std::lround(seconds));
  const std::string rest = std::to_string(whole % 60);
  return cat(whole / 60, rest.size() < 2 ? ":0" : ":", rest, " min");
}

}  // namespace kvtide
