#include "formats/gguf_parse.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "base/checked.h"
#include "base/text.h"
#include "formats/byte_reader.h"
#include "formats/ggml_type_names.h"

namespace kvtide {
namespace {

// The least a key (length, 1 byte, type, 1 byte) and a tensor (length, 1 byte, dims, 1 dim, type, offset) can
// take.
constexpr std::uint64_t kSmallestKey = 8 + 1 + 4 + 1;
constexpr std::uint64_t kSmallestTensor = 8 + 1 + 4 + 8 + 4 + 8;

// Files that people hand to a GGUF reader by mistake.
std::string_view guess_format(std::string_view start) {
  if (start.starts_with("lmgg") || start.starts_with("tjgg") || start.starts_with("fmgg") ||
      start.starts_with("algg"))
    return ": an older GGML file, which must be converted to GGUF";
  if (start.starts_with("PK")) return ": a zip archive (perhaps PyTorch weights)";
  if (start.starts_with("version https://git-lfs"))
    return ": a Git LFS pointer, not the model; fetch it with git lfs pull";
  if (start.starts_with("<")) return ": perhaps a web page saved in its place";
  if (start.size() > 8 && start[8] == '{') return ": perhaps a safetensors file";
  return {};
}

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, std::string_view file) : bytes_(bytes), in_(bytes, file) {}

  GgufPart run() {
    read_header();
    read_metadata();
    index_keys();
    read_alignment();
    read_tensors();
    place_tensors();
    return std::move(out_);
  }

 private:
  void read_header() {
    in_.subject("header");
    const std::string_view start(reinterpret_cast<const char*>(bytes_.data()),
                                 std::min<std::size_t>(bytes_.size(), 32));
    if (bytes_.size() >= 4 && !start.starts_with("GGUF"))
      in_.fail(cat("starts with ", quoted(start.substr(0, 4)), " instead of 'GGUF'", guess_format(start)));
    in_.take(4, "the magic word 'GGUF'");
    out_.version = in_.read<std::uint32_t>("the version");
    if (out_.version != 0 && (out_.version & 0xffffu) == 0)
      in_.fail(cat("a big-endian GGUF file (version ", __builtin_bswap32(out_.version),
                   "); only little-endian files are read"),
               ErrorCode::unsupported);
    if (out_.version != 2 && out_.version != 3)
      in_.fail(cat("GGUF version ", out_.version, "; versions 2 and 3 are read"), ErrorCode::unsupported);
    n_tensors_ = in_.read<std::uint64_t>("the number of tensors");
    n_keys_ = in_.read<std::uint64_t>("the number of metadata keys");
    if (n_tensors_ > kMaxTensors)
      in_.fail(cat("declares ", n_tensors_, " tensors; at most ", kMaxTensors, " are allowed"));
    if (n_keys_ > kMaxKeys)
      in_.fail(cat("declares ", n_keys_, " metadata keys; at most ", kMaxKeys, " are allowed"));
    in_.expect_room(n_keys_, kSmallestKey, "metadata keys");
  }

  void read_metadata() {
    out_.metadata.reserve(n_keys_);
    for (std::uint64_t i = 0; i < n_keys_; ++i) {
      const std::string kind = cat("metadata key ", i + 1, " of ", n_keys_);
      in_.subject(kind);
      const std::string_view key = in_.string(kMaxKeyBytes, "the key");
      check_text(key, "the key");
      in_.subject("key", key);
      out_.metadata.push_back({key, read_value()});
    }
  }

  void check_text(std::string_view text, std::string_view what) const {
    if (text.empty()) in_.fail(cat(what, " is empty"));
    for (const char c : text)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
        in_.fail(cat(what, " ", quoted(text), " contains a control character"));
  }

  GgufType read_type(std::string_view what) {
    const auto number = in_.read<std::uint32_t>(what);
    if (number > static_cast<std::uint32_t>(GgufType::f64))
      in_.fail(cat(what, " is ", number, "; 0 to 12 are known"));
    return static_cast<GgufType>(number);
  }

  GgufValue read_value() {
    GgufValue value;
    value.type = read_type("the type of the value");
    switch (value.type) {
      case GgufType::u8:
        value.scalar = std::uint64_t{in_.read<std::uint8_t>("the value")};
        break;
      case GgufType::u16:
        value.scalar = std::uint64_t{in_.read<std::uint16_t>("the value")};
        break;
      case GgufType::u32:
        value.scalar = std::uint64_t{in_.read<std::uint32_t>("the value")};
        break;
      case GgufType::u64:
        value.scalar = in_.read<std::uint64_t>("the value");
        break;
      case GgufType::i8:
        value.scalar = std::int64_t{in_.read<std::int8_t>("the value")};
        break;
      case GgufType::i16:
        value.scalar = std::int64_t{in_.read<std::int16_t>("the value")};
        break;
      case GgufType::i32:
        value.scalar = std::int64_t{in_.read<std::int32_t>("the value")};
        break;
      case GgufType::i64:
        value.scalar = in_.read<std::int64_t>("the value");
        break;
      case GgufType::f32:
        value.scalar = double{in_.read<float>("the value")};
        break;
      case GgufType::f64:
        value.scalar = in_.read<double>("the value");
        break;
      case GgufType::string:
        value.scalar = in_.string(kMaxStringBytes, "the string");
        break;
      case GgufType::boolean: {
        const auto byte = in_.read<std::uint8_t>("the value");
        if (byte > 1) in_.fail(cat("the bool is ", int{byte}, "; it must be 0 or 1"));
        value.scalar = byte == 1;
        break;
      }
      case GgufType::array:
        read_array(value);
        break;
    }
    return value;
  }

  void read_array(GgufValue& value) {
    value.element = read_type("the type of the array's elements");
    value.count = in_.read<std::uint64_t>("the length of the array");
    if (value.element == GgufType::array)
      in_.fail("an array of arrays; only arrays of numbers, bools and strings are read",
               ErrorCode::unsupported);
    if (value.element == GgufType::string) {
      in_.expect_room(value.count, 8, "strings");
      n_strings_ += value.count;
      if (n_strings_ > kMaxArrayStrings)
        in_.fail(cat("brings the strings in arrays to ", n_strings_, "; at most ", kMaxArrayStrings,
                     " are allowed"));
      value.strings.reserve(value.count);
      for (std::uint64_t i = 0; i < value.count; ++i)
        value.strings.push_back(in_.string(kMaxStringBytes, "a string of the array"));
      return;
    }
    const std::size_t width = gguf_type_bytes(value.element);
    in_.expect_room(value.count, width, "array elements");
    value.elements =
        in_.take(value.count * width, "the array");  // cannot overflow: the elements fit into the file
    if (value.element == GgufType::boolean)
      for (const std::byte byte : value.elements)
        if (byte > std::byte{1}) in_.fail(cat("a bool of the array is ", int(byte), "; it must be 0 or 1"));
  }

  void index_keys() {
    out_.key_order.resize(out_.metadata.size());
    std::iota(out_.key_order.begin(), out_.key_order.end(), 0u);
    std::ranges::sort(out_.key_order, {}, [&](std::uint32_t i) { return out_.metadata[i].key; });
    const auto twice = std::ranges::adjacent_find(
        out_.key_order, [&](auto a, auto b) { return out_.metadata[a].key == out_.metadata[b].key; });
    if (twice == out_.key_order.end()) return;
    in_.subject("key", out_.metadata[*twice].key);
    in_.fail("appears more than once; keys must be unique");
  }

  void read_alignment() {
    const auto entry = std::ranges::lower_bound(out_.key_order, std::string_view("general.alignment"), {},
                                                [&](std::uint32_t i) { return out_.metadata[i].key; });
    if (entry == out_.key_order.end() || out_.metadata[*entry].key != "general.alignment") return;
    const GgufValue& value = out_.metadata[*entry].value;
    in_.subject("key", "general.alignment");
    if (value.type != GgufType::u32)
      in_.fail(cat("is of type ", gguf_type_name(value.type), "; it must be u32"));
    alignment_ = std::get<std::uint64_t>(value.scalar);
    if (!std::has_single_bit(alignment_) || alignment_ > kMaxAlignment)
      in_.fail(cat("is ", alignment_, "; it must be a power of two from 1 to ", kMaxAlignment));
  }

  void read_tensors() {
    in_.subject("header");
    in_.expect_room(n_tensors_, kSmallestTensor, "tensors");
    out_.tensors.reserve(n_tensors_);
    offsets_.reserve(n_tensors_);
    for (std::uint64_t i = 0; i < n_tensors_; ++i) {
      const std::string kind = cat("tensor ", i + 1, " of ", n_tensors_);
      in_.subject(kind);
      GgufTensor tensor;
      tensor.name = in_.string(kMaxNameBytes, "the name");
      check_text(tensor.name, "the name");
      in_.subject("tensor", tensor.name);
      read_shape(tensor);
      read_dtype(tensor);
      offsets_.push_back(in_.read<std::uint64_t>("the offset of its data"));
      out_.tensors.push_back(std::move(tensor));
    }
  }

  void read_shape(GgufTensor& tensor) {
    const auto dims = in_.read<std::uint32_t>("the number of dimensions");
    if (dims < 1 || dims > kMaxDims)
      in_.fail(cat("has ", dims, " dimensions; 1 to ", kMaxDims, " are allowed"));
    tensor.shape.reserve(dims);
    std::uint64_t elements = 1;
    for (std::uint32_t d = 0; d < dims; ++d) {
      const auto length = in_.read<std::uint64_t>("a dimension");
      if (length == 0) in_.fail(cat("dimension ", d, " is 0; an empty tensor has no use"));
      const auto product = checked_mul(elements, length);
      if (!product)
        in_.fail(cat("dimension ", d, " is ", length, ": the number of elements exceeds 2^63 - 1"));
      elements = *product;
      tensor.shape.push_back(static_cast<std::int64_t>(length));
    }
  }

  void read_dtype(GgufTensor& tensor) {
    const auto number = in_.read<std::uint32_t>("the type");
    const auto dtype = dtype_from_number(number);
    if (dtype) {
      tensor.dtype = *dtype;
      const auto& info = dtype_info(*dtype);
      if (tensor.shape[0] % info.block_elements != 0)
        in_.fail(cat("has rows of ", tensor.shape[0], " elements; ", info.name, " needs a multiple of ",
                     info.block_elements));
      return;
    }
    const std::string_view name = unsupported_type_name(number);
    std::string known;
    for (const auto& info : kDTypes) known += (known.empty() ? "" : " ") + std::string(info.name);
    in_.fail(cat("has type ", number, name.empty() ? "" : " (", name, name.empty() ? "" : ")",
                 "; the types that are read: ", known),
             ErrorCode::unsupported);
  }

  // Turns offsets into views, now that the table's end, and with it the start of the data, is known.
  void place_tensors() {
    const auto start = checked_align(in_.offset(), alignment_);
    for (std::size_t i = 0; i < out_.tensors.size(); ++i) {
      GgufTensor& tensor = out_.tensors[i];
      in_.subject("tensor", tensor.name);
      const auto& info = dtype_info(tensor.dtype);
      std::uint64_t elements = 1;
      for (const auto length : tensor.shape)
        elements *= static_cast<std::uint64_t>(length);  // checked in read_shape
      const auto bytes = checked_mul(elements / static_cast<std::uint64_t>(info.block_elements),
                                     static_cast<std::uint64_t>(info.block_bytes));
      if (!bytes) in_.fail(cat(elements, " elements of type ", info.name, " exceed 2^63 - 1 bytes"));
      if (offsets_[i] % alignment_ != 0)
        in_.fail(cat("offset ", offsets_[i], " is not a multiple of the alignment ", alignment_));
      const auto first = start ? checked_add(*start, offsets_[i]) : std::nullopt;
      const auto last = first ? checked_add(*first, *bytes) : std::nullopt;
      if (!last || *last > bytes_.size())
        in_.fail(cat("needs ", *bytes, " bytes at offset ", offsets_[i],
                     " of the data, which starts at byte ", start.value_or(0), ", but the file ends at byte ",
                     bytes_.size()));
      // A plain float is read through its own type; the quantised blocks are packed structs.
      if (info.block_elements == 1 && *first % static_cast<std::uint64_t>(info.block_bytes) != 0)
        in_.fail(cat("starts at byte ", *first, "; ", info.name, " needs a multiple of ", info.block_bytes));
      tensor.data = bytes_.subspan(*first, *bytes);
    }
    check_overlap();
  }

  void check_overlap() {
    std::vector<std::uint32_t> order(out_.tensors.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::sort(order, {}, [&](std::uint32_t i) { return offsets_[i]; });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const GgufTensor& before = out_.tensors[order[i - 1]];
      const GgufTensor& after = out_.tensors[order[i]];
      if (offsets_[order[i]] >= offsets_[order[i - 1]] + before.data.size())
        continue;  // both lie in the file
      in_.subject("tensor", after.name);
      in_.fail(cat("overlaps tensor ", quoted(before.name), ", which takes ", before.data.size(),
                   " bytes from offset ", offsets_[order[i - 1]], " on; its own offset is ",
                   offsets_[order[i]]));
    }
  }

  std::span<const std::byte> bytes_;
  ByteReader in_;
  GgufPart out_;
  std::uint64_t n_tensors_ = 0;
  std::uint64_t n_keys_ = 0;
  std::uint64_t n_strings_ = 0;  // in arrays, so far
  std::uint64_t alignment_ = kDefaultAlignment;
  std::vector<std::uint64_t> offsets_;  // of the tensors' data, from the start of the data section
};

}  // namespace

GgufPart parse_gguf(std::span<const std::byte> bytes, std::string_view file) {
  return Parser(bytes, file).run();
}

std::size_t gguf_type_bytes(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean:
      return 1;
    case GgufType::u16:
    case GgufType::i16:
      return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32:
      return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64:
      return 8;
    case GgufType::string:
    case GgufType::array:
      return 0;
  }
  return 0;
}

std::string_view gguf_type_name(GgufType type) {
  static constexpr std::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<std::uint32_t>(type)];
}

}  // namespace kvtide
