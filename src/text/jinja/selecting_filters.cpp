// map, select, reject, selectattr and rejectattr: another filter or test for every item.
#include "base/text.h"
#include "text/jinja/compare.h"
#include "text/jinja/filter_tables.h"
#include "text/jinja/filters.h"
#include "text/jinja/item_path.h"
#include "text/jinja/value_tests.h"

namespace kvtide::jinja {
namespace selecting {
namespace {

// The first argument, which names a filter, test or attribute.
Value take_first(Run& run, std::string_view function, Arguments& given) {
  if (given.positional.empty()) run.refuse(cat(function, "() needs an argument"));
  Value first = std::move(given.positional.front());
  given.positional.erase(given.positional.begin());
  return first;
}

Value map(Run& run, const Value& self, Arguments& given) {
  std::vector<Value> out;
  if (given.positional.empty()) {
    const Bound args(run, "map", given, {"attribute", "default"});
    const ItemPath path(run, args[0],
                        args.has(1) && !args[1].is_none() ? std::optional(args[1]) : std::nullopt);
    for (const Value& item : items_of(run, self)) out.push_back(path.of(run, item));
    return run.made(std::move(out), Sequence::Form::generator);
  }
  const Value name = take_first(run, "map", given);
  const Native filter = name.marked() == nullptr ? nullptr : find_filter(name.marked()->view());
  if (filter == nullptr)
    run.refuse(cat("map: there is no filter named ",
                   name.marked() == nullptr ? name.type_name() : quoted(name.marked()->view())));
  for (const Value& item : items_of(run, self)) {
    Arguments arguments = given;
    out.push_back(filter(run, item, arguments));
  }
  return run.made(std::move(out), Sequence::Form::generator);
}

template <bool by_attribute, bool wanted>
Value select(Run& run, const Value& self, Arguments& given) {
  constexpr std::string_view kName = by_attribute ? (wanted ? "selectattr" : "rejectattr")
                                     : wanted     ? "select"
                                                  : "reject";
  const ItemPath path = by_attribute ? ItemPath(run, take_first(run, kName, given)) : ItemPath();
  Native test = nullptr;
  if (!given.positional.empty()) {
    const Value name = take_first(run, kName, given);
    if (name.marked() != nullptr) test = find_test(name.marked()->view());
    if (test == nullptr)
      run.refuse(cat(kName, ": there is no test named ",
                     name.marked() == nullptr ? name.type_name() : quoted(name.marked()->view())));
  }
  std::vector<Value> out;
  for (const Value& item : items_of(run, self)) {
    const Value part = path.of(run, item);
    Arguments arguments = given;
    const bool holds = test == nullptr ? part.truth() : test(run, part, arguments).truth();
    if (holds == wanted) out.push_back(item);
  }
  return run.made(std::move(out), Sequence::Form::generator);
}

constexpr NamedNative kFilters[] = {
    {"map", map},
    {"reject", select<false, false>},
    {"rejectattr", select<true, false>},
    {"select", select<false, true>},
    {"selectattr", select<true, true>},
};

}  // namespace
}  // namespace selecting

std::span<const NamedNative> selecting_filters() { return selecting::kFilters; }

}  // namespace kvtide::jinja
