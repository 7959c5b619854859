// The methods of mappings, lists and tuples that change nothing.
#include <algorithm>

#include "base/text.h"
#include "text/jinja/attributes.h"
#include "text/jinja/compare.h"
#include "text/jinja/value_text.h"

namespace kvtide::jinja {
namespace container_methods {
namespace {

const Mapping& entries(const Value& self) { return *self.mapping(); }

Value get(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "get", given, {"key", "default"});
  if (!key_text(args[0])) run.refuse(cat("unhashable type: '", args[0].type_name(), "'"));
  const Value* found = entries(self).find(args[0]);
  return found != nullptr ? *found : args.value_or(1, nullptr);
}

Value keys(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "keys", given, {});
  return run.made(items_of(run, self), Sequence::Form::keys);
}

Value values(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "values", given, {});
  std::vector<Value> all;
  for (const auto& [key, value] : entries(self).items()) all.push_back(value);
  return run.made(std::move(all), Sequence::Form::values);
}

Value items(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "items", given, {});
  std::vector<Value> all;
  for (const auto& [key, value] : entries(self).items())
    all.push_back(run.made({key, value}, Sequence::Form::tuple));
  return run.made(std::move(all), Sequence::Form::items);
}

Value copy(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "copy", given, {});
  if (self.mapping() == nullptr) return run.made(self.sequence()->items);
  run.charge(2 * sizeof(Value) * entries(self).size());
  return Value::mapping(std::make_shared<Mapping>(entries(self)));
}

Value index(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "index", given, {"value", "start", "stop"});
  const auto& all = self.sequence()->items;
  const auto size = static_cast<std::int64_t>(all.size());
  const auto placed = [&](std::int64_t at) {
    return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const std::int64_t end = placed(args.whole(2, size));
  for (std::int64_t at = placed(args.whole(1, 0)); at < end; ++at)
    if (are_equal(run, all[static_cast<std::size_t>(at)], args[0])) return Value(at);
  run.refuse(cat(represented(run, args[0]).bytes, " is not in list"));
}

Value count(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "count", given, {"value"});
  const auto& all = self.sequence()->items;
  return Value(static_cast<std::int64_t>(std::count_if(
      all.begin(), all.end(), [&](const Value& item) { return are_equal(run, item, args[0]); })));
}

constexpr NamedNative kOfMappings[] = {
    {"get", get}, {"keys", keys}, {"values", values}, {"items", items}, {"copy", copy}};
constexpr NamedNative kOfLists[] = {{"index", index}, {"count", count}, {"copy", copy}};

template <std::size_t n>
Native find(const NamedNative (&all)[n], std::string_view name) {
  const auto* found = std::find_if(all, all + n, [name](const NamedNative& one) { return one.name == name; });
  return found == all + n ? nullptr : found->function;
}

}  // namespace
}  // namespace container_methods

Native find_mapping_method(std::string_view name) {
  return container_methods::find(container_methods::kOfMappings, name);
}
Native find_list_method(std::string_view name) {
  return container_methods::find(container_methods::kOfLists, name);
}

}  // namespace kvtide::jinja
