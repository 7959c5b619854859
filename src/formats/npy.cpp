#include "formats/npy.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/half.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "formats/byte_reader.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 33;
constexpr std::size_t kMostNpyDimensions = 8;

// The value behind 'key': in the header, a Python dictionary on one line.
std::string_view value_of(const ByteReader& reader, std::string_view header, std::string_view key) {
  const std::string quoted_key = cat("'", key, "'");
  const std::size_t at = header.find(quoted_key);
  const std::size_t colon = at == header.npos ? header.npos : header.find(':', at);
  if (colon == header.npos) reader.fail(cat("the header has no ", quoted_key));
  std::string_view rest = header.substr(colon + 1);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  return rest;
}

std::vector<std::int64_t> shape_of(const ByteReader& reader, std::string_view text) {
  const std::size_t close = text.find(')');
  if (text.empty() || text.front() != '(' || close == text.npos)
    reader.fail("'shape' is not a tuple of whole numbers");
  std::vector<std::int64_t> shape;
  std::int64_t all = 1;
  const char *at = text.data() + 1, *end = text.data() + close;
  while (at != end) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    std::int64_t extent = 0;
    const auto [stopped, failure] = std::from_chars(at, end, extent);
    if (failure != std::errc() || extent < 0 || shape.size() == kMostNpyDimensions)
      reader.fail(cat("'shape' must be at most ", kMostNpyDimensions, " whole numbers from 0 on"));
    if (extent > 0 && all > kMostElements / extent) reader.fail("'shape' promises too many elements");
    all *= extent;
    shape.push_back(extent);
    at = stopped;
  }
  return shape;
}

template <class T>
double number(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return static_cast<double>(value);
}

}  // namespace

NpyArray parse_npy(std::span<const std::byte> bytes, const std::string& path) {
  ByteReader reader(bytes, path);
  const auto magic = reader.take(6, "the magic bytes");
  if (std::memcmp(magic.data(), "\x93NUMPY", 6) != 0) reader.fail("this is not a NumPy file (.npy)");
  const auto major = reader.read<std::uint8_t>("the version");
  reader.read<std::uint8_t>("the version");
  if (major != 1 && major != 2) reader.fail(cat("format version ", int{major}, " is not 1 or 2"));
  const std::uint64_t size = major == 1 ? reader.read<std::uint16_t>("the header's length")
                                        : reader.read<std::uint32_t>("the header's length");
  const auto text = reader.take(size, "the header");
  const std::string_view header(reinterpret_cast<const char*>(text.data()), text.size());

  NpyArray array;
  array.shape = shape_of(reader, value_of(reader, header, "shape"));
  if (!value_of(reader, header, "fortran_order").starts_with("False"))
    reader.fail("'fortran_order' must be False: save a C-ordered array");
  struct Type {
    std::string_view name;
    std::size_t size;
    double (*read)(const std::byte*);
  };
  constexpr std::array<Type, 5> types{{
      {"'<f4'", 4, number<float>},
      {"'<f8'", 8, number<double>},
      {"'<i4'", 4, number<std::int32_t>},
      {"'<i8'", 8, number<std::int64_t>},
      {"'<f2'", 2,
       [](const std::byte* at) {
         std::uint16_t bits;
         std::memcpy(&bits, at, sizeof bits);
         return static_cast<double>(f16_to_f32(bits));
       }},
  }};
  const std::string_view descr = value_of(reader, header, "descr");
  const Type* type = nullptr;
  for (const Type& known : types)
    if (descr.starts_with(known.name)) type = &known;
  if (type == nullptr) reader.fail("'descr' must be one of <f2, <f4, <f8, <i4, <i8");
  std::int64_t count = 1;
  for (const std::int64_t extent : array.shape) count *= extent;
  const auto data = reader.take(static_cast<std::uint64_t>(count) * type->size, "the elements");
  if (reader.left() > 0) reader.fail(cat(reader.left(), " bytes too many behind the elements"));
  array.numbers.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = type->read(data.data() + static_cast<std::size_t>(i) * type->size);
    if (type->name == "'<i8'" && std::abs(value) > 0x1p53) reader.fail("an element is beyond 2^53");
    array.numbers.push_back(value);
  }
  return array;
}

NpyArray read_npy(const std::string& path) {
  const MappedFile file(path, MappedFile::Mode::copy);
  return parse_npy(file.bytes(), path);
}

}  // namespace kvtide
