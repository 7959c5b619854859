// letter_methods.h: the methods of texts that change or ask after their letters: upper, title, isdigit, zfill.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/object.h"

namespace kvtide::jinja {

Native find_letter_method(std::string_view name);  // nullptr: there is none

std::string capitalized(std::string_view text);
// True for a text that has letters, all of them upper (lower) case.
bool is_all_upper(std::string_view text);
bool is_all_lower(std::string_view text);

}  // namespace kvtide::jinja
