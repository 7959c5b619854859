#include "serve/work/disk_names.h"

#include <charconv>
#include <chrono>
#include <filesystem>

#include "base/text.h"

namespace kvtide::serve {
namespace disk_names {

constexpr std::string_view kEnding = ".kv";
constexpr std::size_t kNumberDigits = 12;
constexpr std::size_t kLength = kModelDigits + 1 + kNumberDigits + kEnding.size();

bool is_hex(std::string_view text) { return text.find_first_not_of("0123456789abcdef") == text.npos; }

std::string_view digits_of(std::string_view name) { return name.substr(kModelDigits + 1, kNumberDigits); }

}  // namespace disk_names

std::string prefix_file_name(std::string_view model, std::uint64_t number) {
  std::string digits(disk_names::kNumberDigits, '0');
  for (std::size_t i = digits.size(); i-- > 0; number >>= 4) digits[i] = "0123456789abcdef"[number & 15];
  return cat(model.substr(0, kModelDigits), "-", digits, disk_names::kEnding);
}

bool is_prefix_file(std::string_view name) {
  return name.size() == disk_names::kLength && name[kModelDigits] == '-' &&
         name.ends_with(disk_names::kEnding) && disk_names::is_hex(name.substr(0, kModelDigits)) &&
         disk_names::is_hex(disk_names::digits_of(name));
}

bool is_half_written(std::string_view name) {
  return name.size() > disk_names::kLength && is_prefix_file(name.substr(0, disk_names::kLength)) &&
         name.substr(disk_names::kLength).starts_with(".tmp");
}

std::uint64_t prefix_file_number(std::string_view name) {
  std::uint64_t out = 0;
  const std::string_view digits = disk_names::digits_of(name);
  std::from_chars(digits.data(), digits.data() + digits.size(), out, 16);
  return out;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double last_used(const std::string& path) {
  std::error_code error;
  const auto at = std::filesystem::last_write_time(path, error);
  if (error) return 0;
  const auto ago = std::filesystem::file_time_type::clock::now() - at;
  return seconds_now() - std::chrono::duration<double>(ago).count();
}

void use_now(const std::string& path) {
  std::error_code ignored;
  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now(), ignored);
}

}  // namespace kvtide::serve
