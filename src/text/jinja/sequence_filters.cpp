#include <algorithm>

#include "base/text.h"
#include "text/jinja/compare.h"
#include "text/jinja/filter_tables.h"
#include "text/jinja/item_path.h"
#include "text/jinja/operators.h"
#include "text/jinja/value_text.h"
#include "text/utf8.h"

namespace kvtide::jinja {
namespace sequence_filter {
namespace {

Value list(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "list", given, {});
  return run.made(items_of(run, self));
}

Value first(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "first", given, {});
  Sequence* generator = self.sequence(Sequence::Form::generator);
  if (generator != nullptr && generator->taken < generator->items.size())
    return generator->items[generator->taken++];
  const auto items = items_of(run, self);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items.front();
}

Value last(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "last", given, {});
  if (self.sequence(Sequence::Form::generator) != nullptr) run.refuse("'generator' object is not reversible");
  if (self.is_undefined()) run.refuse_undefined(self);
  const auto items = items_of(run, self);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reverse(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "reverse", given, {});
  auto items = items_of(run, self);
  std::reverse(items.begin(), items.end());
  if (self.marked() == nullptr)
    return run.made(std::move(items), self.sequence(Sequence::Form::generator) != nullptr
                                          ? Sequence::Form::list
                                          : Sequence::Form::generator);
  MarkedText out;
  for (const Value& item : items) out.append(*item.marked());
  return run.made(std::move(out));
}

Value join(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "join", given, {"d", "attribute"});
  const MarkedText by = args.has(0) ? printed(run, args[0]) : MarkedText();
  const ItemPath path(run, args.value_or(1, nullptr));
  MarkedText out;
  bool is_first = true;
  for (const Value& item : items_of(run, self)) {
    if (!std::exchange(is_first, false)) out.append(by);
    const MarkedText text = printed(run, path.of(run, item));
    run.charge(text.size() + by.size());
    out.append(text);
  }
  return run.made(std::move(out));
}

Value items(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "items", given, {});
  std::vector<Value> all;
  if (self.is_undefined()) return run.made(std::move(all), Sequence::Form::generator);
  if (self.mapping() == nullptr) run.refuse("Can only get item pairs from a mapping.");
  for (const auto& [key, value] : self.mapping()->items())
    all.push_back(run.made({key, value}, Sequence::Form::tuple));
  return run.made(std::move(all), Sequence::Form::generator);
}

Value sum(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "sum", given, {"attribute", "start"});
  const ItemPath path(run, args.value_or(0, nullptr));
  Value total = args.value_or(1, Value(std::int64_t{0}));
  if (total.marked() != nullptr) run.refuse("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : items_of(run, self)) total = arithmetic(run, Op::add, total, path.of(run, item));
  return total;
}

Value batch(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "batch", given, {"linecount", "fill_with"});
  const std::int64_t size = args.whole(0);
  std::vector<Value> rows, row;
  for (const Value& item : items_of(run, self)) {
    if (static_cast<std::int64_t>(row.size()) == size) rows.push_back(run.made(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    const Value fill = args.value_or(1, nullptr);
    while (!fill.is_none() && static_cast<std::int64_t>(row.size()) < size) {
      run.step();
      row.push_back(fill);
    }
    rows.push_back(run.made(std::move(row)));
  }
  return run.made(std::move(rows), Sequence::Form::generator);
}

Value slice_into(Run& run, const Value& self, Arguments& given) {
  const Bound args(run, "slice", given, {"slices", "fill_with"});
  const auto all = items_of(run, self);
  const std::int64_t count = args.whole(0);
  if (count <= 0) run.refuse("slice: the number of slices must be 1 or more");
  run.step(static_cast<std::size_t>(count));
  const auto size = static_cast<std::int64_t>(all.size());
  const std::int64_t each = size / count, longer = size % count;
  std::vector<Value> slices;
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t end = begin + each + (i < longer ? 1 : 0);
    std::vector<Value> one(all.begin() + begin, all.begin() + end);
    if (args.has(1) && !args[1].is_none() && i >= longer) one.push_back(args[1]);
    slices.push_back(run.made(std::move(one)));
    begin = end;
  }
  return run.made(std::move(slices), Sequence::Form::generator);
}

constexpr NamedNative kFilters[] = {
    {"batch", batch}, {"first", first},     {"items", items},      {"join", join}, {"last", last},
    {"list", list},   {"reverse", reverse}, {"slice", slice_into}, {"sum", sum},
};

}  // namespace
}  // namespace sequence_filter

std::span<const NamedNative> sequence_filters() { return sequence_filter::kFilters; }

}  // namespace kvtide::jinja
