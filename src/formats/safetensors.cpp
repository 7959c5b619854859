#include "formats/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/checked.h"
#include "base/text.h"
#include "formats/byte_reader.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

using Json = nlohmann::json;

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

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::string_view file) : reader_(bytes, file), file_(file) {
    reader_.subject("safetensors header");
  }

  SafeTensors parse() {
    const auto length = reader_.read<std::uint64_t>("its length");
    if (length > kLongestHeader)
      refuse(cat("its header of ", length, " bytes is longer than ", kLongestHeader));
    const std::span<const std::byte> header = reader_.take(length, "its text");
    data_ = reader_.take(reader_.left(), "the tensors");
    if (header.empty() || header[0] != std::byte{'{'}) refuse("its header does not begin with {");
    const Json json = tree({reinterpret_cast<const char*>(header.data()), header.size()});
    if (!json.is_object()) refuse("the header is no JSON object");
    for (const auto& [name, item] : json.items()) {
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

  // A tree of a few levels; a name that stands there twice is refused.
  Json tree(std::string_view text) const {
    int depth = 0;
    bool deep = false, twice = false;
    std::vector<std::vector<std::string>> names;
    const auto watch = [&](int, Json::parse_event_t event, Json& value) {
      if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
        if (++depth > 4) deep = true;
        if (event == Json::parse_event_t::object_start) names.emplace_back();
      }
      if (event == Json::parse_event_t::object_end || event == Json::parse_event_t::array_end) {
        --depth;
        if (event == Json::parse_event_t::object_end) {
          std::vector<std::string>& seen = names.back();
          std::sort(seen.begin(), seen.end());
          twice = twice || std::adjacent_find(seen.begin(), seen.end()) != seen.end();
          names.pop_back();
        }
      }
      if (event == Json::parse_event_t::key) names.back().push_back(value.get<std::string>());
      if (deep) throw Error(ErrorCode::bad_format, cat(file_, ": the safetensors header nests too deeply"));
      return true;
    };
    // The parser takes a zero byte for the end of its input.
    if (text.find('\0') != text.npos) refuse("the header is not valid JSON");
    Json json;
    try {
      json = Json::parse(text.begin(), text.end(), watch);
    } catch (const Json::exception&) {
      refuse("the header is not valid JSON");
    }
    if (twice) refuse("a name stands twice in its header");
    return json;
  }

  void metadata(const Json& item) {
    if (item.is_null()) return;
    if (!item.is_object()) refuse("__metadata__ is no object");
    for (const auto& [key, value] : item.items()) {
      if (!value.is_string()) refuse(cat("the metadata ", quoted(key), " is no text"));
      result_.metadata[key] = value.get<std::string>();
    }
  }

  std::uint64_t size_at(const std::string& name, const Json& value) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kLargestSize)
      refuse(cat("tensor ", quoted(name), ": a size or offset is no whole number below 2^63"));
    return value.get<std::uint64_t>();
  }

  const Json& field(const std::string& name, const Json& item, const char* key) const {
    const auto found = item.find(key);
    if (found == item.end()) refuse(cat("tensor ", quoted(name), " lacks ", key));
    return *found;
  }

  void tensor(const std::string& name, const Json& item) {
    const auto refuse_it = [&](const std::string& why) { refuse(cat("tensor ", quoted(name), " ", why)); };
    if (!item.is_object()) refuse_it("is no object");
    SafeTensor tensor;
    const Json& dtype = field(name, item, "dtype");
    if (!dtype.is_string()) refuse_it("has a dtype that is no text");
    tensor.dtype = dtype.get<std::string>();
    const Json& shape = field(name, item, "shape");
    if (!shape.is_array() || shape.size() > kMostDimensions)
      refuse_it(cat("has a shape that is no list of at most ", kMostDimensions, " sizes"));
    std::optional<std::uint64_t> needed = element_bits(tensor.dtype);
    if (!needed) refuse_it(cat("has the dtype ", quoted(tensor.dtype), ", which the format does not know"));
    for (const Json& extent : shape) {
      tensor.shape.push_back(static_cast<std::int64_t>(size_at(name, extent)));
      if (needed) needed = checked_mul(*needed, static_cast<std::uint64_t>(tensor.shape.back()));
    }
    const Json& offsets = field(name, item, "data_offsets");
    if (!offsets.is_array() || offsets.size() != 2) refuse_it("has data_offsets that are no pair");
    const std::uint64_t first = size_at(name, offsets[0]), last = size_at(name, offsets[1]);
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
  return Parser(bytes, file).parse();
}

}  // namespace kvtide
