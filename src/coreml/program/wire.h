// wire.h: a protobuf message being read, field by field. What a field means is not known here; protozero is known to wire.cpp,
// and to the writer.
//
//   for (WireMessage model = root; model.next();)
//     if (model.field() == 2) read(model.message("description"));
//
// Every read names its field, and an error says where it stands: "FILE: Model.description.input[0].name: is no UTF-8". Fields
// that nobody asks for are skipped. Repeated numbers are taken packed or one by one.
// Ownership: refers to the bytes, to its source and to the message that it is a part of; all must outlive it.
// Errors: bad_format.
// Thread rules: one thread.
// Source: https://protobuf.dev/programming-guides/encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/function_ref.h"
#include "kvtide/error.h"

namespace kvtide::coreml {

// What is read: the file's name and how much of it may still become something larger in memory.
struct WireSource {
  std::string file;
  std::uint64_t messages_left = std::uint64_t{8} << 20;
};

class WireMessage {
 public:
  static constexpr int kMostDepth = 100;

  // The outermost message; `name` begins every path.
  WireMessage(std::span<const std::byte> bytes, WireSource& source, std::string_view name);

  bool next();  // to the next field; false: there is none
  std::uint32_t field() const { return field_; }

  // What the field holds. `index`: of a repeated one.
  WireMessage message(std::string_view name, std::int64_t index = -1) const;
  std::string text(std::string_view name, std::int64_t index = -1) const;  // UTF-8
  std::span<const std::byte> bytes(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  std::int64_t integer(std::string_view name, std::int64_t least, std::int64_t most) const;
  bool flag(std::string_view name) const { return integer(name) != 0; }
  double real(std::string_view name) const;  // float or double

  // Of repeated numbers: the field may hold all, several or one of them.
  void integers(std::string_view name, FunctionRef<void(std::int64_t)> each) const;
  std::span<const std::byte> fixed(std::string_view name, std::size_t width) const;  // 4 or 8 bytes each

  // An entry of a map with texts as keys: the message that is its value, which knows its key.
  WireMessage entry(std::string_view name) const;
  const std::string& key() const { return key_; }
  std::pair<std::string, std::string> text_entry(std::string_view name) const;

  std::string path() const;  // "Model.description"
  // Throws: "FILE: PATH: WHY".
  [[noreturn]] void fail(std::string_view why, ErrorCode code = ErrorCode::bad_format) const;
  // The same about a field of this message.
  [[noreturn]] void fail_at(std::string_view field, std::string_view why, std::int64_t index = -1) const;

 private:
  enum class Kind : std::uint8_t { varint, fixed32, fixed64, bytes };

  WireMessage() = default;
  std::span<const std::byte> payload(std::string_view name, std::int64_t index) const;

  std::span<const std::byte> rest_;
  WireSource* source_ = nullptr;
  const WireMessage* outer_ = nullptr;
  std::string_view name_;
  std::int64_t index_ = -1;
  std::string key_;
  int depth_ = 0;
  // The field at which it stands.
  std::uint32_t field_ = 0;
  Kind kind_ = Kind::varint;
  std::uint64_t number_ = 0;
  std::span<const std::byte> payload_;  // of bytes; of a number of fixed width
};

}  // namespace kvtide::coreml
