#include <algorithm>

#include "base/text.h"
#include "text/jinja/compare.h"
#include "text/jinja/filter_tables.h"
#include "text/jinja/item_path.h"
#include "text/jinja/text_parts.h"

namespace kvtide::jinja {
namespace sorting {
namespace {

struct Keyed {
  std::vector<Value> keys;
  Value item;
};

// Stable, also when it goes from the greatest to the least.
void sort_by_keys(Run& run, std::vector<Keyed>& all, bool reverse) {
  const auto less = [&run](const Keyed& a, const Keyed& b) {
    for (std::size_t i = 0; i < a.keys.size(); ++i)
      if (!are_equal(run, a.keys[i], b.keys[i])) return is_less(run, a.keys[i], b.keys[i]);
    return false;
  };
  // Merging asks for no order that holds together, which values such as NaN do not have.
  if (reverse)
    std::stable_sort(all.begin(), all.end(), [&](const Keyed& a, const Keyed& b) { return less(b, a); });
  else
    std::stable_sort(all.begin(), all.end(), less);
}

std::vector<ItemPath> paths_of(Run& run, const Value& attribute) {
  std::vector<ItemPath> paths;
  if (attribute.marked() == nullptr) return {ItemPath(run, attribute)};
  for (const ByteRange& part : split_at(attribute.marked()->view(), ",", -1, false))
    paths.emplace_back(run, Value(attribute.marked()->part(part.begin, part.end)));
  return paths;
}

std::vector<Keyed> keyed(Run& run, std::vector<Value> items, const std::vector<ItemPath>& paths,
                         bool by_case) {
  std::vector<Keyed> all;
  for (Value& item : items) {
    Keyed one{{}, item};
    for (const ItemPath& path : paths) one.keys.push_back(sort_key(run, path, item, by_case));
    all.push_back(std::move(one));
  }
  return all;
}

Value sort(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "sort", given, {"reverse", "case_sensitive", "attribute"});
  auto all = keyed(run, items_of(run, self), paths_of(run, args.value_or(2, nullptr)), args.flag(1, false));
  sort_by_keys(run, all, args.flag(0, false));
  std::vector<Value> out;
  for (Keyed& one : all) out.push_back(std::move(one.item));
  return run.made(std::move(out));
}

Value dictsort(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "dictsort", given, {"case_sensitive", "by", "reverse"});
  const MarkedText by = args.text(1, "key");
  if (by.bytes != "key" && by.bytes != "value")
    run.refuse("You can only sort by either \"key\" or \"value\"");
  run.refuse_undefined(self);
  if (self.mapping() == nullptr) run.refuse(cat("'", self.type_name(), " object' has no attribute 'items'"));
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.mapping()->items())
    pairs.push_back(run.made({key, value}, Sequence::Form::tuple));
  const Value place(std::int64_t{by.bytes == "key" ? 0 : 1});
  auto all = keyed(run, std::move(pairs), {ItemPath(run, place)}, args.flag(0, false));
  sort_by_keys(run, all, args.flag(2, false));
  std::vector<Value> out;
  for (Keyed& one : all) out.push_back(std::move(one.item));
  return run.made(std::move(out));
}

Value groupby(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "groupby", given, {"attribute", "default", "case_sensitive"});
  const bool by_case = args.flag(2, false);
  const ItemPath path(run, args[0],
                      args.has(1) && !args[1].is_none() ? std::optional(args[1]) : std::nullopt);
  auto all = keyed(run, items_of(run, self), {path}, by_case);
  sort_by_keys(run, all, false);
  std::vector<Value> groups;
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t end = begin;
    std::vector<Value> items;
    for (; end < all.size() && are_equal(run, all[end].keys[0], all[begin].keys[0]); ++end)
      items.push_back(all[end].item);
    if (end == begin) items.push_back(all[end++].item);
    const Value first = path.of(run, all[begin].item);
    groups.push_back(
        Value::list({first, run.made(std::move(items))}, Sequence::Form::tuple, std::string(kGroupLabel)));
    begin = end;
  }
  return run.made(std::move(groups));
}

template <bool greatest>
Value extreme(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, greatest ? "max" : "min", given, {"case_sensitive", "attribute"});
  const ItemPath path(run, args.value_or(1, nullptr));
  const auto all = keyed(run, items_of(run, self), {path}, args.flag(0, false));
  if (all.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const Keyed* best = &all.front();
  for (const Keyed& one : all) {
    const bool better =
        greatest ? is_less(run, best->keys[0], one.keys[0], ">") : is_less(run, one.keys[0], best->keys[0]);
    if (&one != best && better) best = &one;
  }
  return best->item;
}

Value unique(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "unique", given, {"case_sensitive", "attribute"});
  const ItemPath path(run, args.value_or(1, nullptr));
  Mapping seen;
  std::vector<Value> out;
  for (const Value& item : items_of(run, self)) {
    const Value key = sort_key(run, path, item, args.flag(0, false));
    if (!key_text(key)) run.refuse(cat("unhashable type: '", key.type_name(), "'"));
    if (seen.find(key) != nullptr) continue;
    seen.set(key, nullptr);
    out.push_back(item);
  }
  return run.made(std::move(out), Sequence::Form::generator);
}

constexpr NamedNative kFilters[] = {
    {"dictsort", dictsort},  {"groupby", groupby}, {"max", extreme<true>},
    {"min", extreme<false>}, {"sort", sort},       {"unique", unique},
};

}  // namespace
}  // namespace sorting

std::span<const NamedNative> sorting_filters() { return sorting::kFilters; }

}  // namespace kvtide::jinja
