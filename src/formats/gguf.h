// gguf.h: a GGUF file (versions 2 and 3, little endian, one file or split into parts) as checked metadata and views.
//
// Opening checks everything that later code relies on: every count, length, offset and product, every string, every
// tensor extent against the real size of its file. After a successful open no access can leave the file.
// Ownership: GgufFile owns the mapped bytes; every view (strings, tensors) is valid while it lives.
// Thread rules: const members from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "tensor/dtype.h"

namespace kvtide {

enum class GgufType : std::uint32_t {
  u8 = 0, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64
};

// One value or array of the metadata. Arrays keep their elements in the file; nested arrays are refused.
struct GgufValue {
  GgufType type = GgufType::u32;          // of the value, or `array`
  GgufType element = GgufType::u32;       // of the elements of an array
  std::uint64_t count = 1;                // elements of an array
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view> scalar;  // when type != array
  std::span<const std::byte> elements;    // raw little-endian elements of a numeric or bool array
  std::vector<std::string_view> strings;  // elements of a string array
};

struct GgufTensor {
  std::string_view name;
  DType dtype;
  std::vector<std::int64_t> shape;  // fastest dimension first, as in the file: [columns, rows, ...]
  std::span<const std::byte> data;
  std::size_t part = 0;  // which file of a split model holds it
};

class GgufFile {
 public:
  // Opens `path`; when it is the first part of a split model ("...-00001-of-00003.gguf"), also the others beside it.
  // Throws Error: not_found, bad_format, unsupported, io.
  explicit GgufFile(const std::string& path, MappedFile::Mode mode = MappedFile::Mode::map);

  const std::string& path() const;
  std::uint32_t version() const;
  std::uint64_t file_bytes() const;  // of all parts

  struct Entry {
    std::string_view key;
    GgufValue value;
  };
  std::span<const Entry> metadata() const;  // in the order of the file
  std::span<const GgufTensor> tensors() const;
  const GgufTensor* find_tensor(std::string_view name) const;  // nullptr: absent

  // Typed getters: nullopt when the key is absent, Error(bad_format) when its type or range is wrong.
  std::optional<std::string_view> get_string(std::string_view key) const;
  std::optional<std::uint64_t> get_uint(std::string_view key) const;   // any integer type with a value >= 0
  std::optional<double> get_number(std::string_view key) const;       // any integer or float type, finite
  std::optional<bool> get_bool(std::string_view key) const;
  std::optional<std::span<const std::string_view>> get_strings(std::string_view key) const;
  std::optional<std::vector<double>> get_numbers(std::string_view key) const;  // numeric or bool array
  // Large numeric arrays without going through double: elements converted to T, Error(bad_format) when they do not fit.
  std::optional<std::vector<float>> get_floats(std::string_view key) const;
  std::optional<std::vector<std::int32_t>> get_ints(std::string_view key) const;

  // Drops the pages of one tensor from the resident set (they come back from the file when touched again).
  void release(const GgufTensor& tensor) const noexcept;

 private:
  std::vector<MappedFile> parts_;
  std::uint32_t version_ = 0;
  std::vector<Entry> metadata_;
  std::vector<GgufTensor> tensors_;
  // plus whatever indexes the implementation wants
};

}  // namespace kvtide
