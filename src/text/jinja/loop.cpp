#include "text/jinja/loop.h"

#include "text/jinja/compare.h"
#include "text/jinja/run.h"

namespace kvtide::jinja {
namespace loops {
namespace {

Loop& loop_of(const Value& self) { return static_cast<Loop&>(*self.object()); }

Value cycle(Run& run, const Value& self, Arguments& given) {
  if (given.positional.empty()) run.refuse("no items for cycling given");
  return given.positional[loop_of(self).at % given.positional.size()];
}

Value changed(Run& run, const Value& self, Arguments& given) {
  const Value now = run.made(given.positional, Sequence::Form::tuple);
  auto& before = loop_of(self).last_changed;
  const bool is_new = !before || !are_equal(run, *before, now);
  before = now;
  return Value(is_new);
}

}  // namespace
}  // namespace loops

Value Loop::value(const std::shared_ptr<Loop>& loop) {
  loop->self = loop;
  return Value(std::static_pointer_cast<Object>(loop));
}

std::optional<Value> Loop::attribute(Run&, std::string_view name) {
  if (name == "index") return Value::count(at + 1);
  if (name == "index0") return Value::count(at);
  if (name == "revindex") return Value::count(items.size() - at);
  if (name == "revindex0") return Value::count(items.size() - at - 1);
  if (name == "first") return Value(at == 0);
  if (name == "last") return Value(at + 1 == items.size());
  if (name == "length") return Value::count(items.size());
  if (name == "depth") return Value(std::int64_t{1});
  if (name == "depth0") return Value(std::int64_t{0});
  if (name == "previtem") return at == 0 ? Value::undefined("there is no previous item") : items[at - 1];
  if (name == "nextitem")
    return at + 1 >= items.size() ? Value::undefined("there is no next item") : items[at + 1];
  if (name == "cycle" || name == "changed")
    return Value(std::make_shared<NativeFunction>(name, name == "cycle" ? loops::cycle : loops::changed,
                                                  Value(std::static_pointer_cast<Object>(self.lock()))));
  return std::nullopt;
}

}  // namespace kvtide::jinja
