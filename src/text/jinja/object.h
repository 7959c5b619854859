// object.h: values with behaviour: functions, macros, bound methods, namespaces, loops, cyclers.
//
// Thread rules: an object belongs to one rendering.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace kvtide::jinja {

class Run;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Object {
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  virtual bool is_callable() const { return true; }
  // nullopt: there is none of this name.
  virtual std::optional<Value> attribute(Run&, std::string_view) { return std::nullopt; }
  virtual Value call(Run& run, Arguments arguments);  // refuses, unless overridden
  virtual std::string printed(Run&) const { return "<" + std::string(type_name()) + ">"; }
};

// A function by its address, with the value that it was taken from: a method, or a global function.
using Native = Value (*)(Run& run, const Value& self, Arguments& arguments);
struct NativeFunction final : Object {
  NativeFunction(std::string_view name_, Native function_, Value self_ = nullptr)
      : name(name_), function(function_), self(std::move(self_)) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  Value call(Run& run, Arguments arguments) override { return function(run, self, arguments); }

  std::string name;
  Native function;
  Value self;
};

// What functions, methods, filters and tests are called, and where they are.
struct NamedNative {
  std::string_view name;
  Native function;
};

// The arguments of a call by the names of its parameters. Refuses an argument that is one too many, given twice, or
// has a name that is none of these.
class Bound {
 public:
  Bound(Run& run, std::string_view function, Arguments& arguments,
        std::initializer_list<std::string_view> names);
  bool has(std::size_t i) const { return values_[i].has_value(); }
  const Value& operator[](std::size_t i) const;  // which must have been given
  Value value_or(std::size_t i, Value fallback) const {
    return values_[i] ? *values_[i] : std::move(fallback);
  }
  std::int64_t whole(std::size_t i, std::int64_t fallback) const;
  std::int64_t whole(std::size_t i) const;
  MarkedText text(std::size_t i) const;  // which must have been given, and be a text
  MarkedText text(std::size_t i, std::string_view fallback) const;
  bool flag(std::size_t i, bool fallback) const { return values_[i] ? values_[i]->truth() : fallback; }

 private:
  Run& run_;
  std::string function_;
  std::vector<std::string_view> names_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace kvtide::jinja
