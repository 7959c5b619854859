#include "text/jinja/functions.h"

#include "base/text.h"
#include "text/jinja/compare.h"
#include "text/jinja/value_text.h"

namespace kvtide::jinja {
namespace functions {
namespace {

constexpr std::size_t kMostRange = 100000;  // as a sandbox of Jinja has it

Value range(Run& run, const Value&, Arguments& given) {
  if (given.positional.empty() || given.positional.size() > 3 || !given.named.empty())
    run.refuse("range() takes 1 to 3 whole numbers");
  std::int64_t parts[3] = {0, 0, 1};
  const std::size_t count = given.positional.size();
  for (std::size_t i = 0; i < count; ++i) {
    const auto whole = given.positional[i].whole();
    run.refuse_undefined(given.positional[i]);
    if (!whole)
      run.refuse(cat("'", given.positional[i].type_name(), "' object cannot be interpreted as an integer"));
    parts[count == 1 ? 1 : i] = *whole;
  }
  const auto [begin, end, step] = parts;
  if (step == 0) run.refuse("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (std::int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (items.size() == kMostRange)
      run.refuse(cat("Range too big. The sandbox blocks ranges larger than MAX_RANGE (", kMostRange, ")."));
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  run.charge(items.size() * sizeof(Value));
  return Value::list(
      std::move(items), Sequence::Form::range,
      step == 1 ? cat("range(", begin, ", ", end, ")") : cat("range(", begin, ", ", end, ", ", step, ")"));
}

// What dict() and namespace() take: a mapping or pairs, and names.
std::shared_ptr<Mapping> mapping_of(Run& run, std::string_view function, Arguments& given) {
  if (given.positional.size() > 1)
    run.refuse(cat(function, " expected at most 1 argument, got ", given.positional.size()));
  auto made = std::make_shared<Mapping>();
  if (!given.positional.empty()) {
    const Value& from = given.positional.front();
    run.refuse_undefined(from);
    if (const Mapping* all = from.mapping()) {
      for (const auto& [key, value] : all->items()) made->set(key, value);
    } else {
      for (const Value& item : items_of(run, from)) {
        const auto pair = items_of(run, item);
        if (pair.size() != 2) run.refuse("dict() takes pairs of a key and a value");
        made->set(pair[0], pair[1]);
      }
    }
  }
  for (auto& [name, value] : given.named) made->set(Value::text(name), std::move(value));
  run.charge(4 * sizeof(Value) * made->size());
  return made;
}

Value dict(Run& run, const Value&, Arguments& given) {
  return Value::mapping(mapping_of(run, "dict", given));
}

Value make_namespace(Run& run, const Value&, Arguments& given) {
  auto values = std::make_shared<Scope>();
  const auto given_values = mapping_of(run, "namespace", given);
  for (const auto& [key, value] : given_values->items())
    if (key.marked() != nullptr) values->set(key.marked()->view(), value);
  run.own(values);
  return Value(std::make_shared<Namespace>(std::move(values)));
}

// cycler("odd", "even"): next(), current, reset().
struct Cycler final : Object {
  explicit Cycler(std::vector<Value> all) : items(std::move(all)) {}
  std::string_view type_name() const override { return "Cycler"; }
  bool is_callable() const override { return false; }
  std::optional<Value> attribute(Run&, std::string_view name) override {
    if (name == "current") return items[at];
    if (name == "next" || name == "reset")
      return Value(std::make_shared<NativeFunction>(name, name == "next" ? next : reset, keep()));
    return std::nullopt;
  }
  // A method keeps what it belongs to alive.
  Value keep() { return Value(std::static_pointer_cast<Object>(self.lock())); }
  static Value next(Run&, const Value& self, Arguments&) {
    auto& cycler = static_cast<Cycler&>(*self.object());
    const Value now = cycler.items[cycler.at];
    cycler.at = (cycler.at + 1) % cycler.items.size();
    return now;
  }
  static Value reset(Run&, const Value& self, Arguments&) {
    static_cast<Cycler&>(*self.object()).at = 0;
    return nullptr;
  }

  std::vector<Value> items;
  std::size_t at = 0;
  std::weak_ptr<Cycler> self;
};

Value make_cycler(Run& run, const Value&, Arguments& given) {
  if (given.positional.empty()) run.refuse("at least one item has to be provided");
  auto made = std::make_shared<Cycler>(std::move(given.positional));
  made->self = made;
  return Value(std::static_pointer_cast<Object>(made));
}

// joiner(", "): nothing when it is called first, then the separator.
struct Joiner final : Object {
  explicit Joiner(Value by) : separator(std::move(by)) {}
  std::string_view type_name() const override { return "Joiner"; }
  Value call(Run&, Arguments) override { return std::exchange(used, true) ? separator : Value::text(""); }

  Value separator;
  bool used = false;
};

Value make_joiner(Run& run, const Value&, Arguments& given) {
  const Bound args(run, "joiner", given, {"sep"});
  return Value(std::make_shared<Joiner>(args.value_or(0, Value::text(", "))));
}

Value raise_exception(Run& run, const Value&, Arguments& given) {
  const Bound args(run, "raise_exception", given, {"message"});
  run.refuse(printed(run, args[0]).bytes);
}

Value strftime_now(Run& run, const Value&, Arguments& given) {
  const Bound args(run, "strftime_now", given, {"format"});
  return run.made(time_text(run, args.text(0).view()));
}

constexpr NamedNative kFunctions[] = {
    {"cycler", make_cycler},        {"dict", dict},   {"joiner", make_joiner},
    {"namespace", make_namespace},  {"range", range}, {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
};

}  // namespace
}  // namespace functions

std::optional<Value> Namespace::attribute(Run&, std::string_view name) {
  const Value* found = attributes->find_here(name);
  return found == nullptr ? std::nullopt : std::optional(*found);
}

std::string Namespace::printed(Run& run) const {
  auto all = std::make_shared<Mapping>();
  for (const auto& [key, value] : attributes->values) all->set(Value::text(key), value);
  return cat("<Namespace ", represented(run, Value::mapping(std::move(all))).bytes, ">");
}

std::optional<Value> find_function(std::string_view name) {
  for (const NamedNative& function : functions::kFunctions)
    if (function.name == name) return Value(std::make_shared<NativeFunction>(name, function.function));
  return std::nullopt;
}

}  // namespace kvtide::jinja
