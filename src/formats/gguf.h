// gguf.h: a GGUF file (versions 2 and 3, little endian, one file or split into parts) as checked metadata and
// views.
//
// Opening checks everything that later code relies on: every count, length, offset and product, every string,
// every tensor extent against the real size of its file. After a successful open no access can leave the
// file.
// Ownership: GgufFile owns the mapped bytes; every view (strings, tensors) is valid while it lives, also
// after a move.
// Thread rules: const members from any thread.
//
// Invariants (each is refused at open otherwise)
//   1. Keys and tensor names are unique, non-empty and free of control characters; names are unique over all
//      parts.
//   2. A tensor has 1 to 4 dimensions, none of them 0, and its rows are whole blocks.
//   3. Tensors do not share bytes. Gaps between them are allowed.
//   4. Tensor data starts at a multiple of the file's alignment and of the width of a plain float type.
// Limits: kMaxKeys, kMaxTensors and so on in gguf_parse.h. Memory beside the file: 64 MiB and the file's size
// at most.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "formats/gguf_value.h"

namespace kvtide {

class GgufFile {
 public:
  // Opens `path`; when it is the first part of a split model ("...-00001-of-00003.gguf"), also the others
  // beside it. Names of parts are made from `path` alone, never from what a file says. Throws Error:
  // not_found, bad_format, unsupported, io.
  explicit GgufFile(const std::string& path, MappedFile::Mode mode = MappedFile::Mode::map);

  // Reads a file that is already in memory, aligned to 8 bytes; `bytes` must outlive the result. `name` is
  // for messages. Parts of a split model are refused.
  static GgufFile from_bytes(std::span<const std::byte> bytes, std::string name = "(memory)");

  const std::string& path() const;         // as given to the constructor
  std::vector<std::string> paths() const;  // of all parts
  std::uint32_t version() const;           // 2 or 3
  std::uint64_t file_bytes() const;        // of all parts

  std::span<const GgufEntry> metadata() const;                 // of the first part, in the order of the file
  std::span<const GgufTensor> tensors() const;                 // of all parts, in the order of the files
  const GgufValue* find(std::string_view key) const;           // nullptr: absent
  const GgufTensor* find_tensor(std::string_view name) const;  // nullptr: absent

  // Typed getters: nullopt when the key is absent, Error(bad_format) when its type or range is wrong.
  std::optional<std::string_view> get_string(std::string_view key) const;
  std::optional<std::uint64_t> get_uint(std::string_view key) const;  // any integer type with a value >= 0
  std::optional<double> get_number(std::string_view key) const;       // any integer or float type, finite
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::span<const std::string_view>> get_strings(std::string_view key) const;
  // Numeric or bool array, finite
  std::optional<std::vector<double>> get_numbers(std::string_view key) const;
  // Large numeric arrays without going through double: elements converted to T, Error(bad_format) when they
  // do not fit. get_floats takes f32 and f64 arrays and wants finite values; get_ints takes integer and bool
  // arrays.
  std::optional<std::vector<float>> get_floats(std::string_view key) const;
  std::optional<std::vector<std::int32_t>> get_ints(std::string_view key) const;

  // Drops the pages of one tensor from the resident set (they come back from the file when touched again).
  void release(const GgufTensor& tensor) const noexcept;
  // The same for `size` bytes of it from `offset` on.
  void release(const GgufTensor& tensor, std::size_t offset, std::size_t size) const noexcept;

 private:
  GgufFile() = default;
  void add_first_part(std::span<const std::byte> bytes);
  void add_other_parts(MappedFile::Mode mode);
  void add_part(const std::string& path, std::uint64_t number, std::uint64_t count, MappedFile::Mode mode);
  void index_tensors();
  [[noreturn]] void wrong(std::string_view key, std::string_view message) const;
  [[noreturn]] void wrong_type(std::string_view key, const GgufValue& value, std::string_view wanted) const;

  std::string path_;
  std::uint32_t version_ = 0;
  std::uint64_t file_bytes_ = 0;
  std::vector<MappedFile> parts_;  // empty when made from_bytes
  std::vector<GgufEntry> metadata_;
  std::vector<GgufTensor> tensors_;
  // Indexes sorted by key and by name: the time to build them does not depend on what a hostile file puts
  // into names, as that of a hash table would.
  std::vector<std::uint32_t> key_order_;
  std::vector<std::uint32_t> name_order_;
};

}  // namespace kvtide
