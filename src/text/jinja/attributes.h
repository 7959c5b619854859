// attributes.h: value.name and value[key], in the order in which a sandboxed environment of Jinja looks.
#pragma once

#include <string_view>

#include "text/jinja/object.h"
#include "text/jinja/run.h"
#include "text/jinja/value.h"

namespace kvtide::jinja {

// Methods first, then items. Undefined when there is neither, and for what the sandbox refuses.
Value attribute_of(Run& run, const Value& value, std::string_view name);
// Items first, then methods.
Value item_of(Run& run, const Value& value, const Value& key);

// Methods of texts, mappings and lists. nullptr: there is none of this name.
Native find_text_method(std::string_view name);
Native find_mapping_method(std::string_view name);
Native find_list_method(std::string_view name);

}  // namespace kvtide::jinja
