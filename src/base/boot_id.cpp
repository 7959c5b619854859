#include "base/boot_id.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace kvtide {

std::string boot_id() {
  // A file of the kernel: it has no size, and one read gives all of it.
  const int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  char text[64];
  ssize_t got = 0;
  do {
    got = ::read(fd, text, sizeof text);
  } while (got < 0 && errno == EINTR);
  ::close(fd);
  if (got <= 0) return "";
  const std::string_view line(text, static_cast<std::size_t>(got));
  return std::string(line.substr(0, line.find('\n')));
}

}  // namespace kvtide
