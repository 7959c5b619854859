// operators.h: what operators make of values, as Python has it. Whole numbers have 64 bits: more is refused.
#pragma once

#include "text/jinja/run.h"
#include "text/jinja/syntax.h"
#include "text/jinja/value.h"

namespace kvtide::jinja {

Value arithmetic(Run& run, Op op, const Value& a, const Value& b);
Value negative(Run& run, const Value& value);
Value positive(Run& run, const Value& value);
bool comparison(Run& run, Op op, const Value& a, const Value& b);
// [begin:end:step]; a part that is none was left out.
Value slice(Run& run, const Value& of, const Value& begin, const Value& end, const Value& step);

// HTML entities for & < > ' and ", as the filter `escape` writes them.
MarkedText html_escaped(Run& run, const Value& value);

}  // namespace kvtide::jinja
