#include "formats/safetensors.h"

#include <algorithm>
#include <optional>

#include "base/checked.h"
#include "base/json/json_value.h"
#include "base/text.h"
#include "formats/byte_reader.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's own limit
constexpr std::size_t kMostDimensions = 8;

std::optional<std::uint64_t> element_bits(std::string_view dtype) {
  static constexpr struct {
    std::string_view name;
    std::uint64_t bits;
  } kTypes[] = {{"F64", 64},    {"I64", 64},    {"U64", 64}, {"C64", 64},    {"F32", 32},
                {"I32", 32},    {"U32", 32},    {"F16", 16}, {"BF16", 16},   {"I16", 16},
                {"U16", 16},    {"I8", 8},      {"U8", 8},   {"BOOL", 8},    {"F8_E4M3", 8},
                {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}};
  for (const auto& type : kTypes)
    if (type.name == dtype) return type.bits;
  return std::nullopt;
}

class HeaderParser {
 public:
  HeaderParser(std::span<const std::byte> bytes, std::string_view file) : reader_(bytes, file), file_(file) {
    reader_.subject("safetensors header");
  }

  SafeTensors parse() {
    const auto length = reader_.read<std::uint64_t>("its length");
    if (length > kLongestHeader)
      refuse(cat("its header of ", length, " bytes is longer than ", kLongestHeader));
    const std::span<const std::byte> header = reader_.take(length, "its text");
    data_ = reader_.take(reader_.left(), "the tensors");
    if (header.empty() || header[0] != std::byte{'{'}) refuse("its header does not begin with {");
    // Of an object: it begins with {.
    const JsonValue json = JsonValue::parse({reinterpret_cast<const char*>(header.data()), header.size()},
                                            cat(file_, ": not a sound safetensors file: the header"));
    for (const auto& [name, item] : *json.object()) {
      if (name == "__metadata__")
        metadata(item);
      else
        tensor(name, item);
    }
    check_gaps();
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::bad_format, cat(file_, ": not a sound safetensors file: ", why));
  }

  void metadata(const JsonValue& item) {
    if (item.is_null()) return;
    if (item.object() == nullptr) refuse("__metadata__ is no object");
    for (const auto& [key, value] : *item.object()) {
      if (value.text() == nullptr) refuse(cat("the metadata ", quoted(key), " is no text"));
      result_.metadata[key] = *value.text();
    }
  }

  std::uint64_t size_at(const std::string& name, const JsonValue& value) const {
    if (value.integer() == nullptr || *value.integer() < 0)
      refuse(cat("tensor ", quoted(name), ": a size or offset is no whole number below 2^63"));
    return static_cast<std::uint64_t>(*value.integer());
  }

  const JsonValue& field(const std::string& name, const JsonValue& item, const char* key) const {
    const JsonValue* found = item.find(key);
    if (found == nullptr) refuse(cat("tensor ", quoted(name), " lacks ", key));
    return *found;
  }

  void tensor(const std::string& name, const JsonValue& item) {
    const auto refuse_it = [&](const std::string& why) { refuse(cat("tensor ", quoted(name), " ", why)); };
    if (item.object() == nullptr) refuse_it("is no object");
    SafeTensor tensor;
    const JsonValue& dtype = field(name, item, "dtype");
    if (dtype.text() == nullptr) refuse_it("has a dtype that is no text");
    tensor.dtype = *dtype.text();
    const JsonValue::List* shape = field(name, item, "shape").list();
    if (shape == nullptr || shape->size() > kMostDimensions)
      refuse_it(cat("has a shape that is no list of at most ", kMostDimensions, " sizes"));
    std::optional<std::uint64_t> needed = element_bits(tensor.dtype);
    if (!needed) refuse_it(cat("has the dtype ", quoted(tensor.dtype), ", which the format does not know"));
    for (const JsonValue& extent : *shape) {
      tensor.shape.push_back(static_cast<std::int64_t>(size_at(name, extent)));
      if (needed) needed = checked_mul(*needed, static_cast<std::uint64_t>(tensor.shape.back()));
    }
    const JsonValue::List* offsets = field(name, item, "data_offsets").list();
    if (offsets == nullptr || offsets->size() != 2) refuse_it("has data_offsets that are no pair");
    const std::uint64_t first = size_at(name, (*offsets)[0]), last = size_at(name, (*offsets)[1]);
    if (first > last || last > data_.size())
      refuse_it(cat("lies at ", first, " to ", last, " of ", data_.size(), " bytes"));
    // Types of less than a byte: a tensor of them must fill whole bytes.
    if (!needed || *needed % 8 != 0 || *needed / 8 != last - first)
      refuse_it(cat("has ", last - first, " bytes, which is not what its shape needs"));
    tensor.bytes = data_.subspan(first, last - first);
    places_.emplace_back(first, last);
    result_.tensors.emplace(name, std::move(tensor));
  }

  void check_gaps() {
    std::sort(places_.begin(), places_.end());
    std::uint64_t end = 0;
    for (const auto& [first, last] : places_) {
      if (first != end) refuse(cat("its tensors overlap or leave a gap at byte ", std::min(first, end)));
      end = last;
    }
    if (end != data_.size()) refuse(cat("its tensors end at ", end, " of ", data_.size(), " bytes"));
  }

  ByteReader reader_;
  std::string_view file_;
  std::span<const std::byte> data_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> places_;
  SafeTensors result_;
};

}  // namespace

SafeTensors SafeTensors::parse(std::span<const std::byte> bytes, std::string_view file) {
  return HeaderParser(bytes, file).parse();
}

}  // namespace kvtide
