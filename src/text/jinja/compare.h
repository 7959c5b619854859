// compare.h: equality and order of values as Python has them. What has no order is refused.
#pragma once

#include "text/jinja/run.h"
#include "text/jinja/value.h"

namespace kvtide::jinja {

bool are_equal(Run& run, const Value& a, const Value& b);
bool is_less(Run& run, const Value& a, const Value& b, std::string_view op = "<");
// `needle in hay`.
bool contains(Run& run, const Value& hay, const Value& needle);

// What a value gives when it is gone through: items, keys, characters. A generator is used up by it.
std::vector<Value> items_of(Run& run, const Value& value);

}  // namespace kvtide::jinja
