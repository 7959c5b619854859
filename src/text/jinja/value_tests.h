// value_tests.h: the tests of Jinja: what stands behind `is`.
#pragma once

#include <string_view>

#include "text/jinja/object.h"

namespace kvtide::jinja {

Native find_test(std::string_view name);  // nullptr: there is none

}  // namespace kvtide::jinja
