#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/pages.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

void* map_or_throw(const std::string& path, std::size_t size, int protection, int flags, int fd) {
  void* memory = ::mmap(nullptr, size, protection, flags, fd, 0);
  if (memory == MAP_FAILED)
    throw Error(errno == ENOMEM ? ErrorCode::out_of_memory : ErrorCode::io,
                cat(path, ": cannot map ", size, " bytes: ", std::strerror(errno)));
  return memory;
}

}  // namespace

MappedFile::MappedFile(const std::string& path, Mode mode) : path_(path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) throw Error(ErrorCode::not_found, cat(path, ": cannot open: ", std::strerror(errno)));
  struct stat info {};
  if (::fstat(file.fd, &info) != 0)
    throw Error(ErrorCode::io, cat(path, ": cannot stat: ", std::strerror(errno)));
  if (S_ISDIR(info.st_mode)) throw Error(ErrorCode::bad_format, cat(path, ": is a directory, not a file"));
  if (!S_ISREG(info.st_mode)) throw Error(ErrorCode::bad_format, cat(path, ": is not a regular file"));
  if (info.st_size <= 0) throw Error(ErrorCode::bad_format, cat(path, ": the file is empty"));
  size_ = static_cast<std::size_t>(info.st_size);

  if (mode == Mode::map) {
    data_ = static_cast<std::byte*>(map_or_throw(path, size_, PROT_READ, MAP_PRIVATE, file.fd));
    mapped_ = true;
    return;
  }
  data_ = static_cast<std::byte*>(
      map_or_throw(path, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1));
  for (std::size_t done = 0; done < size_;) {
    const ssize_t got = ::read(file.fd, data_ + done, size_ - done);
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else if (got == 0 || errno != EINTR) {
      const std::string why = got == 0 ? "the file became shorter" : std::strerror(errno);
      ::munmap(data_, size_);
      data_ = nullptr;
      throw Error(ErrorCode::io, cat(path, ": read stopped at byte ", done, " of ", size_, ": ", why));
    }
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(other.mapped_),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  std::swap(path_, other.path_);
  return *this;
}

void MappedFile::release(std::size_t offset, std::size_t size) const noexcept {
  if (!mapped_) return;
  const std::size_t begin = page_ceil(offset), end = page_floor(offset + size);
  if (begin < end) ::madvise(data_ + begin, end - begin, MADV_DONTNEED);
}

}  // namespace kvtide
