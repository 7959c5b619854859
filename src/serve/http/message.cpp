#include "serve/http/message.h"

#include <cstdint>

namespace kvtide::serve {
namespace message {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
    if (low >= 0) {
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

}  // namespace message

std::string_view Request::path() const {
  const std::string_view whole = target;
  return whole.substr(0, whole.find_first_of("?#"));
}

std::string Request::query(std::string_view name) const {
  const std::string_view whole = target;
  const std::size_t mark = whole.find('?');
  std::string_view rest = mark == whole.npos ? std::string_view() : whole.substr(mark + 1);
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(pair.size() == rest.size() ? rest.size() : pair.size() + 1);
    const std::size_t equals = pair.find('=');
    if (pair.substr(0, equals) == name)
      return equals == pair.npos ? "" : message::percent_decoded(pair.substr(equals + 1));
  }
  return "";
}

const std::string* Request::header(std::string_view small_name) const {
  for (const auto& [name, value] : headers)
    if (name == small_name) return &value;
  return nullptr;
}

bool same_secret(std::string_view given, std::string_view wanted) {
  std::uint32_t differs = given.size() == wanted.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char other = wanted.empty() ? '\0' : wanted[i % wanted.size()];
    differs |= static_cast<std::uint32_t>(static_cast<unsigned char>(given[i] ^ other));
  }
  return differs == 0;
}

}  // namespace kvtide::serve
