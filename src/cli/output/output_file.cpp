#include "cli/output/output_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/text.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::size_t kBuffer = 1 << 20;

// The path behind symbolic links, so that a link is kept and what it points to is replaced.
std::string resolved(const std::string& path) {
  char* real = ::realpath(path.c_str(), nullptr);
  if (real == nullptr) return path;
  std::string result(real);
  std::free(real);
  return result;
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path), target_(resolved(path)) {
  struct stat info {};
  const bool exists = ::stat(target_.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) refuse("cannot write", EISDIR);
  if (exists && !S_ISREG(info.st_mode)) {
    fd_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd_ < 0) refuse("cannot open", errno);
    return;
  }
  const std::size_t slash = target_.rfind('/') + 1;
  for (int attempt = 0; fd_ < 0; ++attempt) {
    temporary_ =
        cat(target_.substr(0, slash), ".", target_.substr(slash), ".", ::getpid(), "-", attempt, ".part");
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                 exists ? info.st_mode & 0777 : 0666);
    if (fd_ < 0 && (errno != EEXIST || attempt == 100)) {
      const int failure = errno;
      temporary_.clear();
      refuse("cannot write", failure);
    }
  }
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::refuse(std::string_view what, int failure) const {
  throw Error(ErrorCode::io, cat(path_, ": ", what, ": ", std::strerror(failure)));
}

void OutputFile::write(std::string_view bytes) {
  buffer_ += bytes;
  if (buffer_.size() >= kBuffer) flush();
}

void OutputFile::flush() {
  for (std::string_view rest = buffer_; !rest.empty();) {
    const ssize_t done = ::write(fd_, rest.data(), rest.size());
    if (done >= 0)
      rest.remove_prefix(static_cast<std::size_t>(done));
    else if (errno != EINTR)
      refuse("write failed", errno);
  }
  buffer_.clear();
}

void OutputFile::commit() {
  flush();
  // Some file systems find out only here that there is no room. Pipes and devices cannot be synced.
  if (!temporary_.empty() && ::fsync(fd_) != 0) refuse("write failed", errno);
  const int fd = fd_;
  fd_ = -1;
  if (::close(fd) != 0) refuse("write failed", errno);
  if (temporary_.empty()) return;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) refuse("cannot be put in place", errno);
  temporary_.clear();
}

void OutputFile::write_whole(const std::string& path, std::string_view bytes) {
  OutputFile file(path);
  file.write(bytes);
  file.commit();
}

void OutputFile::check(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) return;
  const OutputFile probe(path);
}

void OutputFile::check_replaceable(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
    throw Error(ErrorCode::io, cat(path, ": is a device or a pipe; a snapshot needs a file"));
  check(path);
}

void OutputFile::check_room(const std::string& path, std::int64_t bytes, std::string_view what,
                            std::string_view helps) {
  const std::string target = resolved(path);
  const std::size_t slash = target.rfind('/');
  const std::string folder = slash == target.npos ? "." : target.substr(0, slash + 1);
  auto free = std::numeric_limits<double>::infinity();
  std::string_view where = "are free there";
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) == 0)
    free = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  struct rlimit most {};
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
      static_cast<double>(most.rlim_cur) < free) {
    free = static_cast<double>(most.rlim_cur);
    where = "are the most that a file may have (ulimit -f)";
  }
  if (static_cast<double>(bytes) <= free) return;
  throw Error(ErrorCode::io, cat(path, ": ", what, " takes about ", bytes_text(bytes), ", and ",
                                 bytes_text(static_cast<std::int64_t>(free)), " ", where, "; ", helps));
}

}  // namespace kvtide
