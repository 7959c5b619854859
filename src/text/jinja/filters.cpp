#include "text/jinja/filters.h"

#include "text/jinja/filter_tables.h"

namespace kvtide::jinja {

Native find_filter(std::string_view name) {
  for (const auto table :
       {text_filters(), value_filters(), sequence_filters(), selecting_filters(), sorting_filters()})
    for (const NamedNative& filter : table)
      if (filter.name == name) return filter.function;
  return nullptr;
}

}  // namespace kvtide::jinja
