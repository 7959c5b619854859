// gguf_parse.h: the bytes of one GGUF file -> its header, metadata and tensor table. Private to src/formats.
//
// Everything but what needs the other parts of a split model is checked here. Views point into the bytes.
// Thread rules: a pure function.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "formats/byte_reader.h"
#include "formats/gguf_value.h"

namespace kvtide {

inline constexpr std::uint64_t kMaxKeys = 65'536;
inline constexpr std::uint64_t kMaxTensors = 65'536;  // of all parts together, too
inline constexpr std::uint32_t kMaxDims = 4;
inline constexpr std::uint64_t kMaxStringBytes = std::uint64_t{16} << 20;
inline constexpr std::uint64_t kMaxKeyBytes = 65'535;  // the format's own limit
inline constexpr std::uint64_t kMaxNameBytes = 64;     // the format's own limit
inline constexpr std::uint64_t kMaxAlignment = 65'536;
inline constexpr std::uint64_t kDefaultAlignment = 32;
// Strings of all arrays of a file. A view of 16 bytes stands for as few as 8 bytes of file; with this limit
// the views take at most 64 MiB. The largest vocabularies and merge tables have a tenth of it.
inline constexpr std::uint64_t kMaxArrayStrings = std::uint64_t{1} << 22;

struct GgufPart {
  std::uint32_t version = 0;
  std::vector<GgufEntry> metadata;
  std::vector<std::uint32_t> key_order;  // indexes into metadata, sorted by key
  std::vector<GgufTensor> tensors;       // `part` is left 0
};

// `file` is the name for messages. Throws Error: bad_format, unsupported.
GgufPart parse_gguf(std::span<const std::byte> bytes, std::string_view file);

// The steps of parse_gguf that have a file of their own. `in` stands at the start of the table.
std::vector<GgufTensor> read_tensor_table(ByteReader& in, std::span<const std::byte> bytes,
                                          std::uint64_t count, std::uint64_t alignment);

// Refuses a key or a tensor name that is empty or holds control characters.
void check_gguf_name(const ByteReader& in, std::string_view text, std::string_view what);

}  // namespace kvtide
