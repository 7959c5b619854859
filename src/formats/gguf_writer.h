// gguf_writer.h: a GGUF file (version 3) of metadata alone: what carries a vocabulary without its model.
//
// Keys are written in the order in which they were added.
// Ownership: owns the bytes.
// Thread rules: one thread.
// Source: the GGUF specification of the ggml project.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kvtide {

class GgufWriter {
 public:
  GgufWriter& add(std::string_view key, std::string_view value);
  GgufWriter& add(std::string_view key, std::uint32_t value);
  GgufWriter& add(std::string_view key, bool value);
  GgufWriter& add(std::string_view key, std::span<const std::string_view> values);
  GgufWriter& add(std::string_view key, std::span<const float> values);
  GgufWriter& add(std::string_view key, std::span<const std::int32_t> values);
  // Without this overload a string literal would be taken for a bool.
  GgufWriter& add(std::string_view key, const char* value) { return add(key, std::string_view(value)); }

  std::vector<std::byte> bytes() const;  // the whole file

 private:
  template <class T>
  void number(T value);
  void text(std::string_view value);
  void begin(std::string_view key, std::uint32_t type);
  void begin_array(std::string_view key, std::uint32_t type, std::size_t count);

  std::vector<std::byte> body_;
  std::uint64_t keys_ = 0;
};

}  // namespace kvtide
