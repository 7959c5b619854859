#include "cli/arguments/flag_values.h"

#include <charconv>
#include <string>
#include <system_error>

#include "base/byte_size.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "tensor/element_type.h"

namespace kvtide {
namespace {

// True when the whole text is a number in [low, high]; NaN never is.
template <class T>
bool read_number(std::string_view text, T low, T high, T& value) {
  const char* end = text.data() + text.size();
  const auto [stopped, failure] = std::from_chars(text.data(), end, value);
  return failure == std::errc() && stopped == end && value >= low && value <= high;
}

// The same for a count, which may end in K or M: 64K is 65536.
bool read_count(std::string_view text, std::int64_t low, std::int64_t high, std::int64_t& value) {
  std::int64_t unit = 1;
  if (text.ends_with('K') || text.ends_with('k')) unit = 1 << 10;
  if (text.ends_with('M') || text.ends_with('m')) unit = 1 << 20;
  if (unit == 1) return read_number(text, low, high, value);
  text.remove_suffix(1);
  if (!read_number(text, std::int64_t{0}, high / unit, value)) return false;
  value *= unit;
  return value >= low;
}

[[noreturn]] void refuse_value(const Given& given, std::string_view what, std::string_view wanted) {
  throw Error(ErrorCode::invalid_argument,
              cat(given.flag, ": ", what, " must be ", wanted, ", not ", quoted(given.value)));
}

// As a user would type it, rounded up.
std::string short_bytes(std::int64_t count) {
  constexpr std::int64_t kMiB = 1 << 20;
  return count < kMiB ? std::to_string(count) : cat((count + kMiB - 1) / kMiB, "M");
}

}  // namespace

std::int64_t whole(const Given& given, std::string_view what, std::int64_t low, std::int64_t high,
                   std::string_view others) {
  std::int64_t value = 0;
  if (!read_count(given.value, low, high, value))
    refuse_value(given, what,
                 low == high ? cat(low, others) : cat("a whole number from ", low, " to ", high, others));
  return value;
}

float real(const Given& given, std::string_view what, float low, float high) {
  float value = 0.0f;
  if (!read_number(given.value, low, high, value))
    refuse_value(given, what, cat("a number from ", low, " to ", high));
  return value;
}

std::vector<std::int64_t> whole_list(const Given& given, std::string_view what, std::int64_t low,
                                     std::int64_t high) {
  std::vector<std::int64_t> values;
  std::string_view rest = given.value;
  for (;;) {
    const std::size_t comma = rest.find(',');
    std::int64_t value = 0;
    if (!read_count(rest.substr(0, comma), low, high, value))
      refuse_value(given, what, cat("whole numbers from ", low, " to ", high, " with commas between them"));
    values.push_back(value);
    if (comma == rest.npos) return values;
    rest.remove_prefix(comma + 1);
  }
}

std::int64_t bytes(const Given& given, std::string_view what, std::int64_t low) {
  const std::optional<std::int64_t> value = parse_byte_size(given.value);
  if (!value) refuse_value(given, what, "a number of bytes, for instance 64M or 1.5G");
  if (*value < low)
    refuse_value(given, what, cat("at least ", short_bytes(low), ", for instance 64M or 1.5G"));
  return *value;
}

std::string one_of(const Given& given, std::string_view what, std::span<const std::string_view> words) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (given.value == words[i]) return given.value;
    list += cat(i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
  }
  refuse_value(given, what, list);
}

ElementType element_type(const Given& given) {
  return *row_type_from_name(one_of(given, "the type of the KV memory", {"f32", "f16", "q8_0", "q4_0"}));
}

void set_once(std::optional<std::string>& target, const Given& given) {
  if (target)
    throw Error(ErrorCode::invalid_argument, cat(given.flag, ": is given twice, ", quoted(*target), " and ",
                                                 quoted(given.value), "; one of them would be lost"));
  target = given.value;
}

std::string path_of(const Given& given) {
  if (given.value.empty())
    throw Error(ErrorCode::invalid_argument, cat(given.flag, ": the name of a file must not be empty"));
  return given.value;
}

}  // namespace kvtide
