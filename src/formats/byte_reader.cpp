#include "formats/byte_reader.h"

#include <string>

#include "base/text.h"

namespace kvtide {

std::string_view ByteReader::string(std::uint64_t longest, std::string_view what) {
  const auto length = read<std::uint64_t>(what);
  if (length > longest) fail(cat(what, " is ", length, " bytes long; at most ", longest, " are allowed"));
  const auto bytes = take(length, what);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void ByteReader::expect_room(std::uint64_t count, std::uint64_t item_bytes, std::string_view what) const {
  if (count <= left() / item_bytes) return;
  fail(cat("declares ", count, " ", what, " of at least ", item_bytes, " bytes each from byte ", offset_,
           " on, but the file ends at byte ", size()));
}

void ByteReader::fail(std::string_view message, ErrorCode code) const {
  const std::string name = name_.empty() ? std::string() : " " + quoted(name_);
  throw Error(code, cat(file_, ": ", kind_, name, ": ", message));
}

void ByteReader::fail_short(std::uint64_t count, std::string_view what) const {
  fail(cat(what, " needs ", count, " bytes at byte ", offset_, ", but the file ends at byte ", size()));
}

}  // namespace kvtide
