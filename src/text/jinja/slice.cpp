// Parts of texts, lists and tuples: value[begin:end:step].
#include <algorithm>

#include "base/text.h"
#include "text/jinja/characters.h"
#include "text/jinja/operators.h"

namespace kvtide::jinja {
namespace slices {
namespace {

std::optional<std::int64_t> part(Run& run, const Value& value) {
  if (value.is_none()) return std::nullopt;
  if (const auto whole = value.whole()) return whole;
  run.refuse_undefined(value);
  run.refuse("slice indices must be integers or None");
}

// Positions of Python's slice over `size` items.
std::vector<std::size_t> positions(std::int64_t size, std::optional<std::int64_t> begin,
                                   std::optional<std::int64_t> end, std::int64_t step) {
  const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const auto placed = [&](std::optional<std::int64_t> given, std::int64_t fallback) {
    if (!given) return fallback;
    const std::int64_t at = *given < 0 ? (*given < -size ? -1 - size : *given) + size : *given;
    return std::clamp(at, low, high);
  };
  const std::int64_t first = placed(begin, step > 0 ? low : high), last = placed(end, step > 0 ? high : low);
  std::vector<std::size_t> out;
  for (std::int64_t at = first; step > 0 ? at < last : at > last;) {
    out.push_back(static_cast<std::size_t>(at));
    if (step > 0 ? step >= last - at : step <= last - at) break;
    at += step;
  }
  return out;
}

}  // namespace
}  // namespace slices

Value slice(Run& run, const Value& of, const Value& begin, const Value& end, const Value& step) {
  const auto by = slices::part(run, step);
  if (by && *by == 0) run.refuse("slice step cannot be zero");
  const auto from = slices::part(run, begin), to = slices::part(run, end);
  if (const MarkedText* text = of.marked()) {
    run.step(1 + text->size() / 64);
    const std::vector<std::size_t> starts = character_starts(text->view());
    run.charge(text->size());
    const auto size = static_cast<std::int64_t>(starts.size()) - 1;
    const auto places = slices::positions(size, from, to, by.value_or(1));
    if (places.empty()) return Value(text->part(0, 0));
    if (by.value_or(1) == 1) return run.made(text->part(starts[places.front()], starts[places.back() + 1]));
    MarkedText out;
    for (const std::size_t place : places) out.append(*text, starts[place], starts[place + 1]);
    return run.made(std::move(out));
  }
  const Sequence* all = of.sequence();
  const bool fits = of.is_list_or_tuple() || of.sequence(Sequence::Form::range) != nullptr;
  run.refuse_undefined(of);
  if (!fits) return Value::undefined(cat("'", of.type_name(), " object' cannot be sliced"));
  std::vector<Value> items;
  for (const std::size_t place :
       slices::positions(static_cast<std::int64_t>(all->items.size()), from, to, by.value_or(1)))
    items.push_back(all->items[place]);
  return run.made(std::move(items), all->form == Sequence::Form::tuple ? all->form : Sequence::Form::list);
}

}  // namespace kvtide::jinja
