// gguf_builder.h: writes GGUF files for tests, and remembers where every field lies so that tests can damage
// it.
//
//   GgufImage image = GgufBuilder().key("general.architecture", "llama").tensor("w", {32},
//   DType::f32).build(); image.put(image.field(GgufFieldKind::dimension, "w"), std::uint64_t{1} << 63);
//
// The writer shares no code with the reader under test. What the builder writes is valid unless it is told
// otherwise. Ownership: values all the way; nothing refers to the builder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensor/dtype.h"

namespace kvtide::testing {

using Bytes = std::vector<std::byte>;

inline void append(Bytes& out, const void* bytes, std::size_t size) {
  const std::size_t before = out.size();
  out.resize(before + size);
  if (size > 0) std::memcpy(out.data() + before, bytes, size);
}

template <class T>
requires(std::is_arithmetic_v<T>) void append(Bytes& out, T value) { append(out, &value, sizeof(T)); }

inline void append(Bytes& out, std::string_view text) { append(out, text.data(), text.size()); }

enum class GgufFieldKind {
  magic,          // 4 bytes
  version,        // u32
  tensor_count,   // u64
  key_count,      // u64
  key_length,     // u64
  key,            // text
  value_type,     // u32
  element_type,   // u32, of an array
  array_length,   // u64
  string_length,  // u64, of a string value or of a string in an array
  string,         // text
  value,          // number, bool, or all elements of a numeric array
  name_length,    // u64
  name,           // text
  dimensions,     // u32
  dimension,      // u64
  tensor_type,    // u32
  tensor_offset,  // u64
  padding,        // between the tables and the data, and between tensors
  data,           // of a tensor
};

struct GgufField {
  GgufFieldKind kind;
  std::string of;  // the key or the tensor; empty in the header
  std::size_t offset = 0;
  std::size_t size = 0;
};

struct GgufImage {
  Bytes bytes;
  std::vector<GgufField> fields;  // in the order of the file, without gaps

  // The `index`-th field of that kind that belongs to `of`. Throws when there is none: a test that aims
  // beside.
  const GgufField& field(GgufFieldKind kind, std::string_view of = {}, std::size_t index = 0) const {
    for (const GgufField& candidate : fields)
      if (candidate.kind == kind && candidate.of == of && index-- == 0) return candidate;
    throw std::logic_error("no such field of '" + std::string(of) + "'");
  }

  template <class T>
  GgufImage& put(const GgufField& field, T value) {
    if (sizeof(T) > field.size) throw std::logic_error("the value is wider than the field");
    std::memcpy(bytes.data() + field.offset, &value, sizeof(T));
    return *this;
  }

  GgufImage& cut(std::size_t size) {
    bytes.resize(size);
    return *this;
  }
};

class GgufBuilder {
 public:
  struct Part {
    GgufFieldKind kind;
    Bytes bytes;
  };

  GgufBuilder& version(std::uint32_t version) {
    version_ = version;
    return *this;
  }

  // Numbers, bools and text under their GGUF type.
  template <class T>
  requires(std::is_arithmetic_v<T>) GgufBuilder& key(std::string_view name, T value) {
    Bytes payload;
    append(payload, value);
    return raw_key(name, type_number<T>(), {{GgufFieldKind::value, payload}});
  }
  GgufBuilder& key(std::string_view name, std::string_view text) {
    return raw_key(name, 8, {length_part(text.size()), text_part(text)});
  }
  GgufBuilder& key(std::string_view name, const char* text) { return key(name, std::string_view(text)); }

  template <class T>
  requires(std::is_arithmetic_v<T>) GgufBuilder& array(std::string_view name, const std::vector<T>& values) {
    Bytes payload;
    for (const T value : values) append(payload, value);
    return raw_key(
        name, 9,
        {element_part(type_number<T>()), count_part(values.size()), {GgufFieldKind::value, payload}});
  }
  GgufBuilder& strings(std::string_view name, const std::vector<std::string>& texts) {
    std::vector<Part> parts = {element_part(8), count_part(texts.size())};
    for (const std::string& text : texts) {
      parts.push_back(length_part(text.size()));
      parts.push_back(text_part(text));
    }
    return raw_key(name, 9, std::move(parts));
  }

  // Sets the key and lays the tensors out accordingly.
  GgufBuilder& alignment(std::uint32_t alignment) {
    alignment_ = alignment;
    return key("general.alignment", alignment);
  }

  // A tensor with the given data, or with a fixed pattern of small finite numbers when `data` is empty.
  GgufBuilder& tensor(std::string_view name, std::vector<std::uint64_t> shape, DType dtype, Bytes data = {}) {
    std::uint64_t elements = 1;
    for (const auto length : shape) elements *= length;
    const auto bytes = static_cast<std::size_t>(dtype_bytes(dtype, static_cast<std::int64_t>(elements)));
    if (data.empty()) data = pattern(dtype, bytes, tensors_.size());
    tensors_.push_back(
        {std::string(name), std::move(shape), static_cast<std::uint32_t>(dtype), std::move(data)});
    return *this;
  }

  // A key of any type number with any bytes behind it.
  GgufBuilder& raw_key(std::string_view name, std::uint32_t type, std::vector<Part> parts) {
    keys_.push_back({std::string(name), type, std::move(parts)});
    return *this;
  }

  template <class T>
  static constexpr std::uint32_t type_number() {
    if constexpr (std::is_same_v<T, bool>) return 7;
    if constexpr (std::is_same_v<T, float>) return 6;
    if constexpr (std::is_same_v<T, double>) return 12;
    constexpr bool is_signed = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return is_signed ? 1 : 0;
    if constexpr (sizeof(T) == 2) return is_signed ? 3 : 2;
    if constexpr (sizeof(T) == 4) return is_signed ? 5 : 4;
    if constexpr (sizeof(T) == 8) return is_signed ? 11 : 10;
  }

  GgufImage build() const {
    GgufImage out;
    add(out, GgufFieldKind::magic, {}, std::string_view("GGUF"));
    add(out, GgufFieldKind::version, {}, version_);
    add(out, GgufFieldKind::tensor_count, {}, std::uint64_t{tensors_.size()});
    add(out, GgufFieldKind::key_count, {}, std::uint64_t{keys_.size()});
    for (const Key& key : keys_) {
      add(out, GgufFieldKind::key_length, key.name, std::uint64_t{key.name.size()});
      add(out, GgufFieldKind::key, key.name, std::string_view(key.name));
      add(out, GgufFieldKind::value_type, key.name, key.type);
      for (const Part& part : key.parts) add_bytes(out, part.kind, key.name, part.bytes);
    }
    std::uint64_t offset = 0;
    for (const Tensor& tensor : tensors_) {
      add(out, GgufFieldKind::name_length, tensor.name, std::uint64_t{tensor.name.size()});
      add(out, GgufFieldKind::name, tensor.name, std::string_view(tensor.name));
      add(out, GgufFieldKind::dimensions, tensor.name, static_cast<std::uint32_t>(tensor.shape.size()));
      for (const std::uint64_t length : tensor.shape) add(out, GgufFieldKind::dimension, tensor.name, length);
      add(out, GgufFieldKind::tensor_type, tensor.name, tensor.type);
      add(out, GgufFieldKind::tensor_offset, tensor.name, offset);
      offset += (tensor.data.size() + alignment_ - 1) / alignment_ * alignment_;
    }
    for (const Tensor& tensor : tensors_) {
      const std::size_t past = out.bytes.size() % alignment_;
      if (past != 0) add_bytes(out, GgufFieldKind::padding, tensor.name, Bytes(alignment_ - past));
      add_bytes(out, GgufFieldKind::data, tensor.name, tensor.data);
    }
    return out;
  }

 private:
  struct Key {
    std::string name;
    std::uint32_t type;
    std::vector<Part> parts;
  };
  struct Tensor {
    std::string name;
    std::vector<std::uint64_t> shape;
    std::uint32_t type;
    Bytes data;
  };

  template <class T>
  static Part number_part(GgufFieldKind kind, T value) {
    Part part{kind, {}};
    append(part.bytes, value);
    return part;
  }
  static Part length_part(std::size_t n) {
    return number_part(GgufFieldKind::string_length, std::uint64_t{n});
  }
  static Part count_part(std::size_t n) { return number_part(GgufFieldKind::array_length, std::uint64_t{n}); }
  static Part element_part(std::uint32_t type) { return number_part(GgufFieldKind::element_type, type); }
  static Part text_part(std::string_view text) { return number_part(GgufFieldKind::string, text); }

  template <class T>
  static void add(GgufImage& out, GgufFieldKind kind, const std::string& of, T value) {
    add_bytes(out, kind, of, number_part(kind, value).bytes);
  }
  static void add_bytes(GgufImage& out, GgufFieldKind kind, const std::string& of, const Bytes& bytes) {
    out.fields.push_back({kind, of, out.bytes.size(), bytes.size()});
    append(out.bytes, bytes.data(), bytes.size());
  }

  // Small finite weights. No byte exceeds 0x20, so that no f16 in it, wherever it lies, is NaN or infinite.
  static Bytes pattern(DType dtype, std::size_t bytes, std::size_t seed) {
    Bytes data(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      data[i] = std::byte{static_cast<std::uint8_t>((i * 7 + seed * 3) % 33)};
    if (dtype == DType::f32)
      for (std::size_t i = 0; i + 4 <= bytes; i += 4) {
        const float value = (static_cast<float>((i * 37 + seed * 11) % 129) - 64.0f) / 512.0f;
        std::memcpy(data.data() + i, &value, sizeof(value));
      }
    return data;
  }

  std::uint32_t version_ = 3;
  std::uint32_t alignment_ = 32;
  std::vector<Key> keys_;
  std::vector<Tensor> tensors_;
};

}  // namespace kvtide::testing
