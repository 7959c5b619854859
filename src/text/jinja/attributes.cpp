#include "text/jinja/attributes.h"

#include <algorithm>

#include "base/text.h"
#include "text/jinja/characters.h"
#include "text/jinja/value_text.h"

namespace kvtide::jinja {
namespace attributes {
namespace {

// "dict object", "None".
std::string owner_name(const Value& value) {
  return value.is_none() ? "None" : value.type_name() + " object";
}

// What would change a value that others see, too.
bool changes(const Value& value, std::string_view name) {
  constexpr std::string_view kOfMappings[] = {"clear", "pop", "popitem", "setdefault", "update"};
  constexpr std::string_view kOfLists[] = {"append", "clear",  "extend",  "insert",
                                           "pop",    "remove", "reverse", "sort"};
  const auto has = [name](const auto& all) {
    return std::find(std::begin(all), std::end(all), name) != std::end(all);
  };
  return value.mapping() != nullptr ? has(kOfMappings)
                                    : value.sequence(Sequence::Form::list) != nullptr && has(kOfLists);
}

// A method, or what an object says of itself.
std::optional<Value> own_attribute(Run& run, const Value& value, std::string_view name) {
  if (name.starts_with("__") || changes(value, name))
    return Value::undefined(
        cat("access to attribute '", name, "' of '", value.type_name(), "' object is unsafe."));
  Native method = nullptr;
  if (value.marked() != nullptr) method = find_text_method(name);
  if (value.mapping() != nullptr) method = find_mapping_method(name);
  if (value.is_list_or_tuple()) method = find_list_method(name);
  if (method != nullptr) {
    run.charge(sizeof(NativeFunction));
    return Value(std::make_shared<NativeFunction>(name, method, value));
  }
  if (Object* object = value.object()) return object->attribute(run, name);
  const Sequence* tuple = value.sequence(Sequence::Form::tuple);
  if (tuple != nullptr && tuple->label == kGroupLabel && (name == "grouper" || name == "list"))
    return tuple->items[name == "list" ? 1 : 0];
  return std::nullopt;
}

std::optional<Value> at_place(Run& run, const Value& value, const Value& key) {
  const auto place = key.whole();
  if (!place) return std::nullopt;
  const auto within = [&](std::size_t size) -> std::optional<std::size_t> {
    const auto count = static_cast<std::int64_t>(size);
    if (*place < -count || *place >= count) return std::nullopt;
    return static_cast<std::size_t>(*place < 0 ? *place + count : *place);
  };
  if (const MarkedText* text = value.marked()) {
    run.step(1 + text->size() / 64);
    const auto at = within(character_count(text->view()));
    if (!at) return std::nullopt;
    const std::size_t begin = byte_of_character(text->view(), *at);
    return Value(text->part(begin, begin + byte_of_character(text->view().substr(begin), 1)));
  }
  if (!value.is_list_or_tuple() && value.sequence(Sequence::Form::range) == nullptr) return std::nullopt;
  const auto at = within(value.sequence()->items.size());
  if (!at) return std::nullopt;
  return value.sequence()->items[*at];
}

}  // namespace
}  // namespace attributes

Value attribute_of(Run& run, const Value& value, std::string_view name) {
  run.refuse_undefined(value);
  if (auto own = attributes::own_attribute(run, value, name)) return std::move(*own);
  if (const Mapping* all = value.mapping())
    if (const Value* found = all->find(name)) return *found;
  return Value::undefined(cat("'", attributes::owner_name(value), "' has no attribute '", name, "'"));
}

Value item_of(Run& run, const Value& value, const Value& key) {
  run.refuse_undefined(value);
  if (const Mapping* all = value.mapping()) {
    if (const Value* found = all->find(key)) return *found;
  } else if (auto found = attributes::at_place(run, value, key)) {
    return std::move(*found);
  }
  if (const MarkedText* name = key.marked()) {
    if (auto own = attributes::own_attribute(run, value, name->view())) return std::move(*own);
    return Value::undefined(
        cat("'", attributes::owner_name(value), "' has no attribute ", quoted_as_python(name->view())));
  }
  return Value::undefined(
      cat(attributes::owner_name(value), " has no element ", represented(run, key).bytes));
}

}  // namespace kvtide::jinja
