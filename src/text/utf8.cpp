#include "text/utf8.h"

#include <cstdint>
#include <cstring>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// What the bytes at the start of `text` are: a whole character of `length` bytes, the `length` bytes of a
// character that is cut off by the end of the text, or `length` bytes that no continuation can save.
struct Scan {
  enum class Kind { whole, cut, bad } kind;
  std::size_t length;
};

Scan scan_character(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Scan::Kind::whole, 1};
  if (lead < 0xc2 || lead > 0xf4) return {Scan::Kind::bad, 1};
  const std::size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  // The second byte alone decides about overlong forms, surrogates and code points above U+10FFFF.
  unsigned low = 0x80, high = 0xbf;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Scan::Kind::cut, i};
    if (byte(i) < low || byte(i) > high) return {Scan::Kind::bad, i};
    low = 0x80;
    high = 0xbf;
  }
  return {Scan::Kind::whole, length};
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view text) noexcept {
  std::size_t at = 0;
  while (at < text.size()) {
    if (text.size() - at >= 8) {  // most text is ASCII: eight bytes at a time
      std::uint64_t bytes = 0;
      std::memcpy(&bytes, text.data() + at, 8);
      if ((bytes & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const Scan scan = scan_character(text.substr(at));
    if (scan.kind != Scan::Kind::whole) return at;
    at += scan.length;
  }
  return std::nullopt;
}

void require_utf8(std::string_view text, std::string_view what) {
  if (const auto at = find_invalid_utf8(text)) {
    throw Error(ErrorCode::bad_text, cat(what, " is not valid UTF-8 at byte ", *at, " of ", text.size(),
                                         "; kvtide reads UTF-8 only (convert it, for instance with iconv)"));
  }
}

char32_t utf8_at(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) return lead;
  if (lead < 0xe0) return (lead & 0x1f) << 6 | (byte(1) & 0x3f);
  if (lead < 0xf0) return (lead & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
  return (lead & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xc0 | code_point >> 6);
    put(0x80 | (code_point & 0x3f));
  } else if (code_point < 0x10000) {
    put(0xe0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3f));
    put(0x80 | (code_point & 0x3f));
  } else {
    put(0xf0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3f));
    put(0x80 | (code_point >> 6 & 0x3f));
    put(0x80 | (code_point & 0x3f));
  }
}

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  std::size_t at = 0;
  while (at < pending_.size()) {
    const std::string_view rest = std::string_view(pending_).substr(at);
    const Scan scan = scan_character(rest);
    if (scan.kind == Scan::Kind::cut) break;
    out += scan.kind == Scan::Kind::whole ? rest.substr(0, scan.length) : kReplacement;
    at += scan.length;
  }
  pending_.erase(0, at);
  return out;
}

std::string Utf8Stream::finish() {
  const bool cut = !pending_.empty();
  pending_.clear();
  return cut ? std::string(kReplacement) : std::string();
}

}  // namespace kvtide
