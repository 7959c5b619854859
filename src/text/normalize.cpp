#include "text/normalize.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/text.h"
#include "kvtide/error.h"
#include "text/utf8.h"

namespace kvtide {
namespace {

struct FreeText {
  void operator()(void* memory) const { std::free(memory); }
};

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// The upper case of the small letters for which it is several: Unicode's SpecialCasing.
struct SpecialCase {
  char32_t small;
  std::string_view upper, title;
};
constexpr SpecialCase kSpecialCases[] = {
    {0xdf, "SS", "Ss"},
    {0x149, "\u02bcN", "\u02bcN"},
    {0x1f0, "J\u030c", "J\u030c"},
    {0x390, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {0x3b0, "\u03a5\u0308\u0301", "\u03a5\u0308\u0301"},
    {0x587, "\u0535\u0552", "\u0535\u0582"},
    {0xfb00, "FF", "Ff"},
    {0xfb01, "FI", "Fi"},
    {0xfb02, "FL", "Fl"},
    {0xfb03, "FFI", "Ffi"},
    {0xfb04, "FFL", "Ffl"},
    {0xfb05, "ST", "St"},
    {0xfb06, "ST", "St"},
};

const SpecialCase* special_case(char32_t c) {
  const auto* found = std::find_if(std::begin(kSpecialCases), std::end(kSpecialCases),
                                   [c](const SpecialCase& special) { return special.small == c; });
  return found == std::end(kSpecialCases) ? nullptr : found;
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

}  // namespace

std::string normalize(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &made,
                                             static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, FreeText> owner(made);
  if (size < 0)
    throw Error(size == UTF8PROC_ERROR_NOMEM ? ErrorCode::out_of_memory : ErrorCode::bad_text,
                cat("text: cannot be normalised: ", utf8proc_errmsg(size)));
  return {reinterpret_cast<const char*>(made), static_cast<std::size_t>(size)};
}

std::string lowercased(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    const char32_t c = utf8_at(text, at);
    // The one character whose lower case is two.
    if (c == 0x130)
      out += "i\u0307";
    else
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
  return out;
}

std::string uppercased(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); at += utf8_length(text[at])) {
    const char32_t c = utf8_at(text, at);
    if (const SpecialCase* special = special_case(c))
      out += special->upper;
    else
      append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
  return out;
}

std::string titlecased_character(char32_t code_point) {
  std::string out;
  if (const SpecialCase* special = special_case(code_point))
    out = special->title;
  else
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code_point))));
  return out;
}

bool is_upper(char32_t code_point) { return category(code_point) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t code_point) { return category(code_point) == UTF8PROC_CATEGORY_LL; }
bool is_cased(char32_t code_point) {
  return is_upper(code_point) || is_lower(code_point) || category(code_point) == UTF8PROC_CATEGORY_LT;
}

bool is_printable(char32_t code_point) {
  switch (category(code_point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return code_point == ' ';
    default:
      return true;
  }
}

bool is_word_character(char32_t code_point) {
  if (code_point == 0x200c || code_point == 0x200d) return true;
  if ((code_point >= 0x24b6 && code_point <= 0x24e9)) return true;  // circled letters
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code_point))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

}  // namespace kvtide
