#include "coreml/program/wire.h"

#include <cstring>
#include <protozero/pbf_reader.hpp>
#include <utility>

#include "base/text.h"
#include "text/utf8.h"

namespace kvtide::coreml {
namespace {

std::span<const std::byte> as_bytes(protozero::data_view view) {
  return {reinterpret_cast<const std::byte*>(view.data()), view.size()};
}

protozero::pbf_reader reader_of(std::span<const std::byte> bytes) {
  return protozero::pbf_reader(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

bool is_plain(std::string_view name) {
  for (const char c : name)
    if ((c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_') return false;
  return !name.empty() && name.size() <= 80;
}

}  // namespace

WireMessage::WireMessage(std::span<const std::byte> bytes, WireSource& source, std::string_view name)
    : rest_(bytes), source_(&source), name_(name) {}

bool WireMessage::next() {
  try {
    protozero::pbf_reader reader = reader_of(rest_);
    if (!reader.next()) return false;
    field_ = reader.tag();
    switch (reader.wire_type()) {
      case protozero::pbf_wire_type::varint:
        kind_ = Kind::varint;
        number_ = reader.get_uint64();
        break;
      case protozero::pbf_wire_type::fixed32:
      case protozero::pbf_wire_type::fixed64: {
        const bool wide = reader.wire_type() == protozero::pbf_wire_type::fixed64;
        kind_ = wide ? Kind::fixed64 : Kind::fixed32;
        reader.skip();
        const std::size_t end = rest_.size() - reader.length();
        payload_ = rest_.subspan(end - (wide ? 8 : 4), wide ? 8 : 4);
        break;
      }
      default:
        kind_ = Kind::bytes;
        payload_ = as_bytes(reader.get_view());
    }
    rest_ = rest_.last(reader.length());
    return true;
  } catch (const protozero::exception& broken) {
    fail(
        cat("is broken behind field ", field_, ", ", rest_.size(), " bytes before its end: ", broken.what()));
  }
}

WireMessage WireMessage::message(std::string_view name, std::int64_t index) const {
  WireMessage part;
  part.rest_ = payload(name, index);
  part.source_ = source_;
  part.outer_ = this;
  part.name_ = name;
  part.index_ = index;
  part.depth_ = depth_ + 1;
  if (part.depth_ > kMostDepth) part.fail(cat("is nested deeper than ", kMostDepth, " messages"));
  if (source_->messages_left == 0) part.fail("is one message more than are read of a file");
  --source_->messages_left;
  return part;
}

std::string WireMessage::text(std::string_view name, std::int64_t index) const {
  const auto found = payload(name, index);
  const std::string_view text(reinterpret_cast<const char*>(found.data()), found.size());
  if (const auto bad = find_invalid_utf8(text)) fail_at(name, cat("is no UTF-8 at byte ", *bad), index);
  if (source_->messages_left == 0) fail_at(name, "is one text more than are read of a file", index);
  --source_->messages_left;
  return std::string(text);
}

std::span<const std::byte> WireMessage::bytes(std::string_view name) const { return payload(name, -1); }

std::int64_t WireMessage::integer(std::string_view name) const {
  if (kind_ != Kind::varint) fail_at(name, "holds no whole number");
  return static_cast<std::int64_t>(number_);
}

std::int64_t WireMessage::integer(std::string_view name, std::int64_t least, std::int64_t most) const {
  const std::int64_t value = integer(name);
  if (value < least || value > most)
    fail_at(name, cat("is ", value, "; it must be between ", least, " and ", most));
  return value;
}

double WireMessage::real(std::string_view name) const {
  if (kind_ == Kind::fixed64) {
    double value;
    std::memcpy(&value, payload_.data(), sizeof value);
    return value;
  }
  if (kind_ != Kind::fixed32) fail_at(name, "holds no floating-point number");
  float value;
  std::memcpy(&value, payload_.data(), sizeof value);
  return static_cast<double>(value);
}

void WireMessage::integers(std::string_view name, FunctionRef<void(std::int64_t)> each) const {
  if (kind_ == Kind::varint) return each(static_cast<std::int64_t>(number_));
  const auto packed = payload(name, -1);
  const char* at = reinterpret_cast<const char*>(packed.data());
  const char* const end = at + packed.size();
  while (at != end) {
    std::int64_t value = 0;
    try {
      value = static_cast<std::int64_t>(protozero::decode_varint(&at, end));
    } catch (const protozero::exception& broken) {
      fail_at(name, cat("is broken ", end - at, " bytes before its end: ", broken.what()));
    }
    each(value);
  }
}

std::span<const std::byte> WireMessage::fixed(std::string_view name, std::size_t width) const {
  const Kind alone = width == 4 ? Kind::fixed32 : Kind::fixed64;
  if (kind_ == alone) return payload_;
  const auto packed = payload(name, -1);
  if (packed.size() % width != 0)
    fail_at(name, cat("has ", packed.size(), " bytes; its numbers have ", width, " each"));
  return packed;
}

WireMessage WireMessage::entry(std::string_view name) const {
  const WireMessage pair = message(name);
  WireMessage value = pair;
  value.rest_ = {};
  value.outer_ = this;
  for (WireMessage at = pair; at.next();) {
    if (at.field() == 1) value.key_ = at.text("key");
    if (at.field() == 2) value.rest_ = at.payload("value", -1);
  }
  return value;
}

std::pair<std::string, std::string> WireMessage::text_entry(std::string_view name) const {
  std::pair<std::string, std::string> out;
  for (WireMessage at = message(name); at.next();) {
    if (at.field() == 1) out.first = at.text("key");
    if (at.field() == 2) out.second = at.text("value");
  }
  return out;
}

void WireMessage::fail(std::string_view why, ErrorCode code) const {
  throw Error(code, cat(source_->file, ": ", path(), ": ", why));
}

void WireMessage::fail_at(std::string_view field, std::string_view why, std::int64_t index) const {
  WireMessage part;
  part.source_ = source_;
  part.outer_ = this;
  part.name_ = field;
  part.index_ = index;
  part.fail(why);
}

std::string WireMessage::path() const {
  std::string text = outer_ == nullptr ? "" : outer_->path() + ".";
  text += name_;
  if (index_ >= 0) text += cat("[", index_, "]");
  if (!key_.empty()) text += cat("[", is_plain(key_) ? key_ : quoted(key_), "]");
  return text;
}

std::span<const std::byte> WireMessage::payload(std::string_view name, std::int64_t index) const {
  if (kind_ != Kind::bytes) fail_at(name, "holds a number where a message or text belongs", index);
  return payload_;
}

}  // namespace kvtide::coreml
