#include "formats/gguf_writer.h"

#include "formats/gguf.h"

namespace kvtide {
namespace {

constexpr std::uint32_t code(GgufType type) { return static_cast<std::uint32_t>(type); }

template <class T>
void append(std::vector<std::byte>& out, T value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace

template <class T>
void GgufWriter::number(T value) {
  append(body_, value);
}

void GgufWriter::text(std::string_view value) {
  number(static_cast<std::uint64_t>(value.size()));
  const auto bytes = std::as_bytes(std::span(value));
  body_.insert(body_.end(), bytes.begin(), bytes.end());
}

void GgufWriter::begin(std::string_view key, std::uint32_t type) {
  text(key);
  number(type);
  ++keys_;
}

void GgufWriter::begin_array(std::string_view key, std::uint32_t type, std::size_t count) {
  begin(key, code(GgufType::array));
  number(type);
  number(static_cast<std::uint64_t>(count));
}

GgufWriter& GgufWriter::add(std::string_view key, std::string_view value) {
  begin(key, code(GgufType::string));
  text(value);
  return *this;
}

GgufWriter& GgufWriter::add(std::string_view key, std::uint32_t value) {
  begin(key, code(GgufType::u32));
  number(value);
  return *this;
}

GgufWriter& GgufWriter::add(std::string_view key, bool value) {
  begin(key, code(GgufType::boolean));
  number(static_cast<std::uint8_t>(value ? 1 : 0));
  return *this;
}

GgufWriter& GgufWriter::add(std::string_view key, std::span<const std::string_view> values) {
  begin_array(key, code(GgufType::string), values.size());
  for (const std::string_view value : values) text(value);
  return *this;
}

GgufWriter& GgufWriter::add(std::string_view key, std::span<const float> values) {
  begin_array(key, code(GgufType::f32), values.size());
  for (const float value : values) number(value);
  return *this;
}

GgufWriter& GgufWriter::add(std::string_view key, std::span<const std::int32_t> values) {
  begin_array(key, code(GgufType::i32), values.size());
  for (const std::int32_t value : values) number(value);
  return *this;
}

std::vector<std::byte> GgufWriter::bytes() const {
  std::vector<std::byte> out;
  for (const char letter : {'G', 'G', 'U', 'F'}) out.push_back(static_cast<std::byte>(letter));
  append(out, std::uint32_t{3});
  append(out, std::uint64_t{0});  // tensors
  append(out, keys_);
  out.insert(out.end(), body_.begin(), body_.end());
  // Readers look for the (empty) tensor data at a multiple of 32 bytes.
  out.resize((out.size() + 31) / 32 * 32);
  return out;
}

}  // namespace kvtide
