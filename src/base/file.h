// file.h: reading and writing files through one small shim, so that tests can make the n-th call fail.
//
// FileSystem is the shim: the calls that saving and loading make, with the meaning of their POSIX namesakes.
// Every call returns -1 and sets errno on failure. save_file() is atomic and durable: the target holds the
// old or the new contents, never a mixture, and when it returns the new contents survive a loss of power. A
// process that is killed while it saves leaves a temporary file, which the next save to that path removes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"

namespace kvtide {

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual int open(const char* path, int flags, unsigned mode) = 0;
  virtual std::int64_t read(int fd, void* data, std::size_t size) = 0;
  virtual std::int64_t write(int fd, const void* data, std::size_t size) = 0;
  virtual std::int64_t size(int fd) = 0;  // of a regular file; -1 with EINVAL for anything else
  virtual int sync(int fd) = 0;
  virtual int close(int fd) = 0;
  virtual int rename(const char* from, const char* to) = 0;
  virtual int unlink(const char* path) = 0;
  // Removes the temporary files that killed processes left behind while they saved `path`. What cannot be
  // removed stays.
  virtual void remove_leftovers(const std::string& path) noexcept { (void)path; }
};

// The operating system's files.
class PosixFiles final : public FileSystem {
 public:
  int open(const char* path, int flags, unsigned mode) override;
  std::int64_t read(int fd, void* data, std::size_t size) override;
  std::int64_t write(int fd, const void* data, std::size_t size) override;
  std::int64_t size(int fd) override;
  int sync(int fd) override;
  int close(int fd) override;
  int rename(const char* from, const char* to) override;
  int unlink(const char* path) override;
  void remove_leftovers(const std::string& path) noexcept override;
};

// Writes the pieces, one after another, to `path`. Throws Error(io) naming the step that failed; the old file
// is then untouched and nothing is left beside it. The temporary file is PATH.tmpPROCESS-NUMBER, locked while
// it is written.
void save_file(FileSystem& files, const std::string& path,
               std::span<const std::span<const std::byte>> pieces);

// The same for contents that are made while they are written: `contents` hands them to the sink part by part.
// What it throws leaves the old file untouched. `later`: nobody waits for the disk, and a loss of power may leave
// a file of the right name and length that holds zeros: for a cache whose sums are compared after every start
// of the machine.
enum class Flush { now, later };
using FileSink = FunctionRef<void(std::span<const std::byte>)>;
void save_file_in_parts(FileSystem& files, const std::string& path,
                        FunctionRef<void(const FileSink&)> contents, Flush flush = Flush::now);

// Bytes that are read one after another.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual std::uint64_t size() const = 0;  // of all of them
  // Fills `into` from where the last read stopped. Throws Error(io), also when the bytes end early.
  virtual void read(std::span<std::byte> into) = 0;
};

// A file opened for reading, closed with the object.
class FileReader final : public ByteStream {
 public:
  // Throws Error(not_found) or Error(bad_format) (not a regular file).
  FileReader(FileSystem& files, const std::string& path);
  ~FileReader() override;
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  std::uint64_t size() const override { return size_; }
  void read(std::span<std::byte> into) override;

 private:
  FileSystem& files_;
  std::string path_;
  int fd_ = -1;
  std::uint64_t size_ = 0;
};

}  // namespace kvtide
