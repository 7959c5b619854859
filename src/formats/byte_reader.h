// byte_reader.h: the only way in which a format reads its bytes: forward, little endian, never past the end.
//
// Every read names what is read; a read that does not fit throws Error(bad_format) with the file, the object,
// the byte where it starts, the bytes it needs and the byte where the file ends. Nothing is allocated unless
// that happens.
// Ownership: refers to the bytes, the file name and the subject; all must outlive it.
// Thread rules: one thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "kvtide/error.h"

namespace kvtide {

static_assert(std::endian::native == std::endian::little, "files are little endian and are read in place");

class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  std::uint64_t offset() const { return offset_; }
  std::uint64_t size() const { return bytes_.size(); }
  std::uint64_t left() const { return bytes_.size() - offset_; }

  // What the next reads belong to, for messages: a kind ("tensor") and, once it is known, a name out of the
  // file.
  void subject(std::string_view kind, std::string_view name = {}) {
    kind_ = kind;
    name_ = name;
  }

  // A number of fixed width, unaligned.
  template <class T>
  requires(std::is_arithmetic_v<T>) T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  // The next `count` bytes, in place.
  std::span<const std::byte> take(std::uint64_t count, std::string_view what) {
    if (count > left()) fail_short(count, what);
    const auto taken = bytes_.subspan(offset_, count);
    offset_ += count;
    return taken;
  }

  // A 64-bit length followed by that many bytes of text, in place. Longer than `longest` is refused.
  std::string_view string(std::uint64_t longest, std::string_view what);

  // Refuses a count of items, each of at least `item_bytes`, that do not fit into the rest of the file.
  void expect_room(std::uint64_t count, std::uint64_t item_bytes, std::string_view what) const;

  // Throws Error(code): "FILE: KIND 'NAME': MESSAGE".
  [[noreturn]] void fail(std::string_view message, ErrorCode code = ErrorCode::bad_format) const;

 private:
  [[noreturn]] void fail_short(std::uint64_t count, std::string_view what) const;

  std::span<const std::byte> bytes_;
  std::string_view file_;
  std::string_view kind_ = "header";
  std::string_view name_;
  std::size_t offset_ = 0;
};

}  // namespace kvtide
