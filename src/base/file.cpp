#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::size_t kLargestCall = std::size_t{1}
                                     << 26;  // bytes per read or write: interruptions stay cheap

constexpr std::string_view kTemporary = ".tmp";

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// A temporary file that disappears unless it was put in place.
class Temporary {
 public:
  Temporary(FileSystem& files, const std::string& target) : files_(files), target_(target) {
    for (int attempt = 0; fd_ < 0; ++attempt) {
      path_ = cat(target, kTemporary, ::getpid(), "-", attempt);
      fd_ = files_.open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
      if (fd_ < 0 && errno == EINTR) continue;
      if (fd_ < 0 && (errno != EEXIST || attempt >= 1000)) fail("create a temporary file beside it");
    }
  }
  ~Temporary() {
    if (fd_ >= 0) files_.close(fd_);
    if (!path_.empty()) files_.unlink(path_.c_str());
  }

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto wrote = files_.write(fd_, bytes.data(), std::min(bytes.size(), kLargestCall));
      if (wrote > 0)
        bytes = bytes.subspan(static_cast<std::size_t>(wrote));
      else if (wrote == 0 || errno != EINTR)
        fail("write");
    }
  }

  void put_in_place(Flush flush) {
    const std::string parent = folder_of(target_);  // behind the rename nothing may need memory
    // A failed flush is final: the system may have dropped the pages that it could not write.
    if (flush == Flush::now && files_.sync(fd_) != 0) fail("flush to the disk");
    const int closed = files_.close(fd_);
    fd_ = -1;
    if (closed != 0) fail("close");
    if (files_.rename(path_.c_str(), target_.c_str()) != 0) fail("rename the temporary file");
    path_.clear();
    if (flush == Flush::later) return;
    // The rename is durable only with its folder.
    const int folder = files_.open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (folder < 0) fail("open its folder");
    const int synced = files_.sync(folder);
    const int error = errno;
    files_.close(folder);
    errno = error;
    if (synced != 0) fail("flush its folder");
  }

 private:
  [[noreturn]] void fail(const char* step) {
    const int error = errno;
    throw Error(ErrorCode::io, cat(target_, ": cannot ", step, ": ", std::strerror(error)));
  }

  FileSystem& files_;
  std::string target_, path_;
  int fd_ = -1;
};

// The process in the name of a temporary file of `target`, both without their folder; 0: it is no such file.
pid_t writer_of(std::string_view name, std::string_view target) {
  if (!name.starts_with(target) || !name.substr(target.size()).starts_with(kTemporary)) return 0;
  name.remove_prefix(target.size() + kTemporary.size());
  pid_t process = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
  const std::string_view number(end, name.data() + name.size());
  const bool numbered =
      number.size() > 1 && number[0] == '-' &&
      std::all_of(number.begin() + 1, number.end(), [](char c) { return c >= '0' && c <= '9'; });
  return error == std::errc() && process > 0 && numbered ? process : 0;
}

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// A process that shares the folder may have numbers of its own, in a container or on another machine: such a
// writer is told by its lock.
bool is_locked(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return true;
  const bool locked = ::flock(fd, LOCK_EX | LOCK_NB) != 0;
  ::close(fd);
  return locked;
}

}  // namespace

int PosixFiles::open(const char* path, int flags, unsigned mode) {
  const int fd = ::open(path, flags, mode);
  if (fd >= 0 && (flags & O_EXCL) != 0) ::flock(fd, LOCK_EX | LOCK_NB);
  return fd;
}
void PosixFiles::remove_leftovers(const std::string& path) noexcept {
  try {
    const std::string folder = folder_of(path), target = path.substr(path.rfind('/') + 1);
    // Not with an iterator of std::filesystem, which ends the program when memory ends.
    const std::unique_ptr<DIR, CloseFolder> entries(::opendir(folder.c_str()));
    if (!entries) return;
    while (const dirent* entry = ::readdir(entries.get())) {
      const pid_t writer = writer_of(entry->d_name, target);
      if (writer == 0 || ::kill(writer, 0) == 0 || errno != ESRCH) continue;
      const std::string file = folder + "/" + entry->d_name;
      if (!is_locked(file)) ::unlink(file.c_str());
    }
  } catch (const std::exception&) {  // of memory: the next save tries again
  }
}
std::int64_t PosixFiles::read(int fd, void* data, std::size_t size) { return ::read(fd, data, size); }
std::int64_t PosixFiles::write(int fd, const void* data, std::size_t size) { return ::write(fd, data, size); }
int PosixFiles::sync(int fd) { return ::fsync(fd); }
int PosixFiles::close(int fd) { return ::close(fd); }
int PosixFiles::rename(const char* from, const char* to) { return ::rename(from, to); }
int PosixFiles::unlink(const char* path) { return ::unlink(path); }
std::int64_t PosixFiles::size(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return -1;
  if (S_ISREG(info.st_mode)) return info.st_size;
  errno = EINVAL;
  return -1;
}

void save_file_in_parts(FileSystem& files, const std::string& path,
                        FunctionRef<void(const FileSink&)> contents, Flush flush) {
  files.remove_leftovers(path);
  Temporary temporary(files, path);
  contents([&](std::span<const std::byte> bytes) { temporary.write(bytes); });
  temporary.put_in_place(flush);
}

void save_file(FileSystem& files, const std::string& path,
               std::span<const std::span<const std::byte>> pieces) {
  save_file_in_parts(files, path, [&](const FileSink& write) {
    for (const auto piece : pieces) write(piece);
  });
}

FileReader::FileReader(FileSystem& files, const std::string& path) : files_(files), path_(path) {
  do {
    fd_ = files_.open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
  } while (fd_ < 0 && errno == EINTR);
  if (fd_ < 0) throw Error(ErrorCode::not_found, cat(path, ": cannot open: ", std::strerror(errno)));
  const std::int64_t size = files_.size(fd_);
  if (size < 0) {
    const int error = errno;
    files_.close(fd_);
    if (error == EINVAL) throw Error(ErrorCode::bad_format, cat(path, ": is not a regular file"));
    throw Error(ErrorCode::io, cat(path, ": cannot tell its size: ", std::strerror(error)));
  }
  size_ = static_cast<std::uint64_t>(size);
}

FileReader::~FileReader() { files_.close(fd_); }

void FileReader::read(std::span<std::byte> into) {
  while (!into.empty()) {
    const auto got = files_.read(fd_, into.data(), std::min(into.size(), kLargestCall));
    if (got > 0)
      into = into.subspan(static_cast<std::size_t>(got));
    else if (got == 0)
      throw Error(ErrorCode::io, cat(path_, ": the file became shorter while it was read"));
    else if (errno != EINTR)
      throw Error(ErrorCode::io, cat(path_, ": cannot read: ", std::strerror(errno)));
  }
}

}  // namespace kvtide
