#include "state/procedural/spill.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/pages.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMostSpilled = std::int64_t{1}
                                      << 21;  // of one head: addresses and file offsets, no disk

[[noreturn]] void refuse_io(const std::string& path, const char* what, int failure) {
  throw Error(failure == ENOMEM ? ErrorCode::out_of_memory : ErrorCode::io,
              cat(path, ": ", what, ": ", std::strerror(failure)));
}

}  // namespace

SpillFile::SpillFile(const std::string& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd_ < 0) refuse_io(path, "cannot make a new file to spill into", errno);
  if (::unlink(path.c_str()) != 0) {
    const int failure = errno;
    ::close(fd_);
    refuse_io(path, "cannot take the spill file's name away", failure);
  }
}

SpillFile::~SpillFile() { ::close(fd_); }

void SpillFile::check_process() const {
  if (mark_.in_child())
    throw Error(ErrorCode::io, cat(path_,
                                   ": the spill file belongs to the process that made it; after a fork, "
                                   "make a new session"));
}

std::int64_t SpillFile::reserve(std::int64_t bytes) {
  check_process();
  const std::lock_guard lock(growing_);
  const std::int64_t offset = end_;
  if (::ftruncate(fd_, offset + page_ceil(bytes)) != 0) refuse_io(path_, "the spill file cannot grow", errno);
  end_ = offset + page_ceil(bytes);
  return offset;
}

void SpillFile::write(std::int64_t offset, const std::byte* data, std::int64_t bytes) {
  check_process();
  while (bytes > 0) {
    const auto written = ::pwrite(fd_, data, static_cast<std::size_t>(bytes), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) refuse_io(path_, "the spill file takes no more", written < 0 ? errno : ENOSPC);
    data += written;
    offset += written;
    bytes -= written;
  }
}

const std::byte* SpillFile::map(std::int64_t offset, std::int64_t bytes) const {
  void* memory = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ, MAP_SHARED, fd_, offset);
  if (memory == MAP_FAILED) refuse_io(path_, "the spill file cannot be mapped", errno);
  return static_cast<const std::byte*>(memory);
}

void SpillFile::unmap(const std::byte* data, std::int64_t bytes) const noexcept {
  ::munmap(const_cast<std::byte*>(data), static_cast<std::size_t>(bytes));
}

void SpillFile::forget(std::int64_t offset, std::int64_t bytes) noexcept {
  if (mark_.in_child()) return;
#ifdef FALLOC_FL_PUNCH_HOLE
  // Where the file system cannot, the disk comes back with the end of the program.
  if (::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, page_ceil(bytes)) != 0) return;
#endif
}

SpilledRows::SpilledRows(std::shared_ptr<SpillFile> file, std::int64_t key_bytes, std::int64_t value_bytes)
    : file_(std::move(file)), key_bytes_(key_bytes), value_bytes_(value_bytes) {
  const std::int64_t keys = page_ceil(kMostSpilled * key_bytes_),
                     values = page_ceil(kMostSpilled * value_bytes_);
  offset_ = file_->reserve(keys + values);
  keys_ = file_->map(offset_, keys + values);
  values_ = keys_ + keys;
}

SpilledRows::~SpilledRows() {
  const std::int64_t bytes = page_ceil(kMostSpilled * key_bytes_) + page_ceil(kMostSpilled * value_bytes_);
  file_->unmap(keys_, bytes);
  file_->forget(offset_, bytes);
}

std::shared_ptr<SpilledRows> SpilledRows::clone() const {
  auto copy = std::make_shared<SpilledRows>(file_, key_bytes_, value_bytes_);
  copy->write_ahead(keys_, values_, rows_);
  copy->take(rows_, blocks_);
  return copy;
}

void SpilledRows::write_ahead(const std::byte* keys, const std::byte* values, std::int64_t rows) {
  if (rows_ + rows > kMostSpilled)
    throw Error(ErrorCode::out_of_memory,
                cat("procedural memory: a head spills at most ", kMostSpilled, " rows"));
  const std::int64_t values_at = offset_ + page_ceil(kMostSpilled * key_bytes_);
  file_->write(offset_ + rows_ * key_bytes_, keys, rows * key_bytes_);
  file_->write(values_at + rows_ * value_bytes_, values, rows * value_bytes_);
}

}  // namespace kvtide
