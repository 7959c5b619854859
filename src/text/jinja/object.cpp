#include "text/jinja/object.h"

#include <algorithm>

#include "base/text.h"
#include "text/jinja/run.h"

namespace kvtide::jinja {

Value Object::call(Run& run, Arguments) { run.refuse(cat("'", type_name(), "' object is not callable")); }

Bound::Bound(Run& run, std::string_view function, Arguments& arguments,
             std::initializer_list<std::string_view> names)
    : run_(run), function_(function), names_(names), values_(names.size()) {
  if (arguments.positional.size() > names_.size())
    run.refuse(cat(function_, "() takes at most ", names_.size(), " arguments (", arguments.positional.size(),
                   " given)"));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    values_[i] = std::move(arguments.positional[i]);
  for (auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end())
      run.refuse(cat(function_, "() got an unexpected keyword argument ", quoted(name)));
    auto& place = values_[static_cast<std::size_t>(found - names_.begin())];
    if (place) run.refuse(cat(function_, "() got multiple values for argument ", quoted(name)));
    place = std::move(value);
  }
}

const Value& Bound::operator[](std::size_t i) const {
  if (!values_[i]) run_.refuse(cat(function_, "() is missing its argument '", names_[i], "'"));
  return *values_[i];
}

std::int64_t Bound::whole(std::size_t i, std::int64_t fallback) const {
  return values_[i] ? whole(i) : fallback;
}

std::int64_t Bound::whole(std::size_t i) const {
  const Value& value = (*this)[i];
  if (const auto whole = value.whole()) return *whole;
  run_.refuse_undefined(value);
  run_.refuse(cat(function_, "(): '", value.type_name(), "' object cannot be interpreted as an integer"));
}

MarkedText Bound::text(std::size_t i) const {
  const Value& value = (*this)[i];
  if (const MarkedText* text = value.marked()) return *text;
  run_.refuse_undefined(value);
  run_.refuse(cat(function_, "(): '", names_[i], "' must be str, not ", value.type_name()));
}

MarkedText Bound::text(std::size_t i, std::string_view fallback) const {
  return values_[i] ? text(i) : MarkedText(fallback);
}

}  // namespace kvtide::jinja
