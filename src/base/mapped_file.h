// mapped_file.h: a whole file, read-only in memory, either mapped or copied.
//
// Ownership: MappedFile owns its bytes until it is destroyed; it can be moved, not copied.
// Thread rules: const members from any thread.
// A mapped file that another program shortens while it is in use can end the process (SIGBUS); Mode::copy
// cannot.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace kvtide {

class MappedFile {
 public:
  enum class Mode { map, copy };

  MappedFile() = default;
  // Throws Error: not_found (missing, unreadable), bad_format (a directory or other non-file, empty), io.
  explicit MappedFile(const std::string& path, Mode mode = Mode::map);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

  // Tells the operating system that the pages wholly inside [offset, offset + size) are not needed for now:
  // they leave the resident set and come back from the file on the next access. No effect on a copied file.
  void release(std::size_t offset, std::size_t size) const noexcept;

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  bool mapped_ = false;
  std::string path_;
};

}  // namespace kvtide
