// wire_editor.h: a protobuf message taken apart into its fields and put together again with one of them changed, lengths of the
// messages around it included. A place is a path of field numbers: "502/2/2[1]/3" is field 3 of the second field 2 of ...
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace kvtide::testing {

struct WireField {
  std::uint32_t number = 0;
  int kind = 0;         // 0: varint, 1: 64 bits, 2: bytes, 5: 32 bits
  std::string payload;  // behind tag and length
};

inline std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 128; value >>= 7) out += static_cast<char>((value & 127) | 128);
  return out + static_cast<char>(value);
}

inline std::string encoded(const WireField& field) {
  std::string out = varint(field.number << 3 | static_cast<unsigned>(field.kind));
  if (field.kind == 2) out += varint(field.payload.size());
  return out + field.payload;
}

inline std::string whole_field(std::uint32_t number, std::uint64_t value) {
  return encoded({number, 0, varint(value)});
}
inline std::string bytes_field(std::uint32_t number, std::string bytes) {
  return encoded({number, 2, std::move(bytes)});
}

// Of a valid message.
inline std::vector<WireField> fields_of(std::string_view message) {
  std::vector<WireField> out;
  std::size_t at = 0;
  const auto number = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= std::uint64_t{byte & 127u} << shift;
      if (byte < 128) return value;
    }
  };
  while (at < message.size()) {
    const std::uint64_t tag = number();
    WireField field{static_cast<std::uint32_t>(tag >> 3), static_cast<int>(tag & 7), {}};
    const std::size_t begin = at;
    std::size_t size = field.kind == 1 ? 8 : 4;
    if (field.kind == 0) {
      field.payload = varint(number());
      size = at - begin;
    } else if (field.kind == 2) {
      size = number();
      field.payload = message.substr(at, size);
    } else {
      field.payload = message.substr(at, size);
    }
    if (field.kind != 0) at += size;
    out.push_back(std::move(field));
  }
  return out;
}

// `change` gets the field that the path names, in the fields of its message. A test that aims beside is a broken test.
template <class Change>
std::string edited(std::string_view message, std::string_view path, const Change& change) {
  const std::size_t slash = path.find('/');
  const std::string step(path.substr(0, slash));
  const std::size_t bracket = step.find('[');
  const auto wanted = static_cast<std::uint32_t>(std::stoul(step));
  std::size_t index = bracket == step.npos ? 0 : std::stoul(step.substr(bracket + 1));
  std::vector<WireField> fields = fields_of(message);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (fields[i].number != wanted || index-- > 0) continue;
    if (slash == path.npos)
      change(fields, i);
    else
      fields[i].payload = edited(fields[i].payload, path.substr(slash + 1), change);
    std::string out;
    for (const WireField& field : fields) out += encoded(field);
    return out;
  }
  throw std::logic_error("the message has no field " + std::string(path));
}

inline std::string without(std::string_view message, std::string_view path) {
  return edited(message, path, [](auto& fields, std::size_t i) {
    fields.erase(fields.begin() + static_cast<std::ptrdiff_t>(i));
  });
}
inline std::string with_whole(std::string_view message, std::string_view path, std::uint64_t value) {
  return edited(message, path, [&](auto& fields, std::size_t i) {
    fields[i] = {fields[i].number, 0, varint(value)};
  });
}
inline std::string with_bytes(std::string_view message, std::string_view path, const std::string& bytes) {
  return edited(message, path, [&](auto& fields, std::size_t i) {
    fields[i] = {fields[i].number, 2, bytes};
  });
}
inline std::string twice(std::string_view message, std::string_view path) {
  return edited(message, path, [](auto& fields, std::size_t i) {
    const WireField copy = fields[i];
    fields.insert(fields.begin() + static_cast<std::ptrdiff_t>(i), copy);
  });
}
// Encoded fields more, at the end of the message that the path names.
inline std::string with_more(std::string_view message, std::string_view path, const std::string& more) {
  return edited(message, path, [&](auto& fields, std::size_t i) { fields[i].payload += more; });
}
inline std::string with_fewer(std::string_view message, std::string_view path, std::size_t bytes) {
  return edited(message, path, [&](auto& fields, std::size_t i) {
    fields[i].payload.resize(fields[i].payload.size() - bytes);
  });
}

}  // namespace kvtide::testing
