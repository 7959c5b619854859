// normalize.h: Unicode normal forms and lower case. The one place that knows utf8proc.
#pragma once

#include <string>
#include <string_view>

namespace kvtide {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// `text` has to be valid UTF-8. Throws Error(out_of_memory).
std::string normalize(std::string_view text, NormalForm form);
// Every character by itself, as its simple lower case.
std::string lowercased(std::string_view text);

}  // namespace kvtide
