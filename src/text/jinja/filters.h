// filters.h: the filters of Jinja that templates of chats use. The value that a filter is applied to is its `self`.
#pragma once

#include <string_view>

#include "text/jinja/object.h"

namespace kvtide::jinja {

Native find_filter(std::string_view name);  // nullptr: there is none

}  // namespace kvtide::jinja
