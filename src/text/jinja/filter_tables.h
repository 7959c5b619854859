// filter_tables.h: the filters by what they are about; find_filter looks through all of them.
#pragma once

#include <span>

#include "text/jinja/object.h"

namespace kvtide::jinja {

std::span<const NamedNative> text_filters();
std::span<const NamedNative> value_filters();  // numbers, defaults, JSON
std::span<const NamedNative> sequence_filters();
std::span<const NamedNative> selecting_filters();  // map, select, reject and their kin
std::span<const NamedNative> sorting_filters();

}  // namespace kvtide::jinja
