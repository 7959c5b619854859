// normalize.h: Unicode normal forms, lower case and word characters. The one place that knows utf8proc.
#pragma once

#include <string>
#include <string_view>

namespace kvtide {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// `text` has to be valid UTF-8. Throws Error(out_of_memory).
std::string normalize(std::string_view text, NormalForm form);
// Every character by itself, as its simple lower case.
std::string lowercased(std::string_view text);
// What \w stands for: letters, marks, decimal digits, connectors such as _, and the two joiners.
bool is_word_character(char32_t code_point);

}  // namespace kvtide
