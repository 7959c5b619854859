#include "formats/gguf_parse.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "base/text.h"
#include "formats/byte_reader.h"

namespace kvtide {
namespace {

// The least a key can take: length, 1 byte, type, 1 byte.
constexpr std::uint64_t kSmallestKey = 8 + 1 + 4 + 1;

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
    out_.tensors = read_tensor_table(in_, bytes_, n_tensors_, alignment_);
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
      check_gguf_name(in_, key, "the key");
      in_.subject("key", key);
      out_.metadata.push_back({key, read_value()});
    }
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

  std::span<const std::byte> bytes_;
  ByteReader in_;
  GgufPart out_;
  std::uint64_t n_tensors_ = 0;
  std::uint64_t n_keys_ = 0;
  std::uint64_t n_strings_ = 0;  // in arrays, so far
  std::uint64_t alignment_ = kDefaultAlignment;
};

}  // namespace

GgufPart parse_gguf(std::span<const std::byte> bytes, std::string_view file) {
  return Parser(bytes, file).run();
}

void check_gguf_name(const ByteReader& in, std::string_view text, std::string_view what) {
  if (text.empty()) in.fail(cat(what, " is empty"));
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      in.fail(cat(what, " ", quoted(text), " contains a control character"));
}

}  // namespace kvtide
