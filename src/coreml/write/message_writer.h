// message_writer.h: a protobuf message being written. protozero is known to this file alone; what a field means is not
// known here.
//
//   MessageWriter model;
//   model.integer(1, 9);
//   model.message(2, description);
//
// A field of its default value may be left out by the caller; inside a oneof it may not, so nothing is left out here.
// Ownership: owns the bytes.
// Thread rules: one caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <protozero/pbf_writer.hpp>
#include <span>
#include <string>
#include <string_view>

namespace kvtide::coreml {

class MessageWriter {
 public:
  MessageWriter() = default;
  MessageWriter(const MessageWriter&) = delete;
  MessageWriter& operator=(const MessageWriter&) = delete;

  void integer(std::uint32_t field, std::int64_t value) { writer_.add_int64(field, value); }
  void number(std::uint32_t field, double value) { writer_.add_double(field, value); }
  void number32(std::uint32_t field, float value) { writer_.add_float(field, value); }
  void text(std::uint32_t field, std::string_view value) {
    writer_.add_bytes(field, value.data(), value.size());
  }
  void bytes(std::uint32_t field, std::span<const std::byte> value) {
    writer_.add_bytes(field, reinterpret_cast<const char*>(value.data()), value.size());
  }
  void message(std::uint32_t field, const MessageWriter& value) { writer_.add_message(field, value.bytes_); }

  // Packed: elements one after another. Nothing for none of them.
  template <class T>
  void packed_integers(std::uint32_t field, std::span<const T> values) {
    if (!values.empty()) writer_.add_packed_int64(field, values.begin(), values.end());
  }
  // Elements of fixed width, as they lie.
  void packed_raw(std::uint32_t field, std::span<const std::byte> values) {
    if (!values.empty()) bytes(field, values);
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
  protozero::pbf_writer writer_{bytes_};
};

}  // namespace kvtide::coreml
