// spill.h: rows of full heads that no longer fit the memory, in a file that attention reads through a map.
//
// The file is made anew and has no name from the start: nothing of it stays behind, however the program ends.
// Written with pwrite, so that a full disk is an Error and not a signal; read where it is mapped. Its pages
// belong to the operating system, which may drop and read them again: they are no part of a KV budget.
// Ownership: rows share the file; copies of a state share rows until one of them adds some. Thread rules: the
// file from any thread; rows are read from any thread and changed by one. The file belongs to the process
// that made it: a forked child that wrote would overwrite its parent's rows, so it may not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "base/fork_mark.h"

namespace kvtide {

class SpillFile {
 public:
  // Throws Error(io) naming the path, also when something stands there already.
  explicit SpillFile(const std::string& path);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // Offset of a part of the file for `bytes` bytes that nobody else uses; the disk holds what is written.
  // Throws Error(io), also in another process.
  std::int64_t reserve(std::int64_t bytes);
  // Throws Error(io), also in another process.
  void write(std::int64_t offset, const std::byte* data, std::int64_t bytes);
  const std::byte* map(std::int64_t offset, std::int64_t bytes) const;
  void unmap(const std::byte* data, std::int64_t bytes) const noexcept;
  // Gives the disk back; not what the parent of a forked child goes on reading.
  void forget(std::int64_t offset, std::int64_t bytes) noexcept;

 private:
  void check_process() const;
  std::string path_;
  ForkMark mark_;
  int fd_ = -1;
  std::mutex growing_;  // of the end, which grows in steps
  std::int64_t end_ = 0;
};

// The oldest rows of one (layer, KV head), in the order of the text.
class SpilledRows {
 public:
  SpilledRows(std::shared_ptr<SpillFile> file, std::int64_t key_bytes, std::int64_t value_bytes);
  ~SpilledRows();
  SpilledRows(const SpilledRows&) = delete;
  SpilledRows& operator=(const SpilledRows&) = delete;
  std::shared_ptr<SpilledRows> clone() const;

  std::int64_t rows() const { return rows_; }
  std::int64_t blocks() const { return blocks_; }
  std::int64_t bytes() const { return rows_ * (key_bytes_ + value_bytes_); }
  const std::byte* key(std::int64_t row) const { return keys_ + row * key_bytes_; }
  const std::byte* value(std::int64_t row) const { return values_ + row * value_bytes_; }

  // Adding rows takes two steps: write_ahead() puts them behind the ones that are there and may throw
  // Error(io), take() counts them in and cannot fail.
  void write_ahead(const std::byte* keys, const std::byte* values, std::int64_t rows);
  void take(std::int64_t rows, std::int64_t blocks) {
    rows_ += rows;
    blocks_ += blocks;
  }

 private:
  std::shared_ptr<SpillFile> file_;
  std::int64_t key_bytes_, value_bytes_;
  std::int64_t offset_ = 0;
  const std::byte *keys_ = nullptr, *values_ = nullptr;
  std::int64_t rows_ = 0, blocks_ = 0;
};

}  // namespace kvtide
