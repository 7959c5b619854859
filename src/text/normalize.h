// normalize.h: Unicode normal forms, upper and lower case, word characters. The one place that knows utf8proc.
#pragma once

#include <string>
#include <string_view>

namespace kvtide {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// `text` has to be valid UTF-8. Throws Error(out_of_memory).
std::string normalize(std::string_view text, NormalForm form);
// Every character by itself, as its simple lower case.
std::string lowercased(std::string_view text);
// Every character by itself, as its upper case, which may be several, and as its title case.
std::string uppercased(std::string_view text);
std::string titlecased_character(char32_t code_point);
// Letters that have a case, and which.
bool is_cased(char32_t code_point);
bool is_upper(char32_t code_point);
bool is_lower(char32_t code_point);
// What Python's repr() prints as it is.
bool is_printable(char32_t code_point);
// What \w stands for: letters, marks, decimal digits, connectors such as _, and the two joiners.
bool is_word_character(char32_t code_point);

}  // namespace kvtide
