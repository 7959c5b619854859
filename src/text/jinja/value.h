// value.h: what a template computes with: the values of Python that JSON has, tuples and views, and objects.
//
// Values are shared and never change, except namespaces, cyclers, joiners and how much of a generator was taken.
// Ownership: a value shares what is below it. Thread rules: values of one rendering belong to one thread; constants
// of a template and the variables of a caller may be read from several.
// Invariant: no list, tuple or mapping lies deeper than kMostDepth.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/marked_text.h"

namespace kvtide::jinja {

class Value;
struct Object;

// What a name or an attribute that is not there stands for.
struct Undefined {
  std::string why;  // "'tools' is undefined"
};

// Generators are what lazy filters of Python return: true even when empty, without a length, and read once.
enum class SequenceForm { list, tuple, generator, keys, values, items, range };
struct Sequence;
class Mapping;

class Value {
 public:
  static constexpr int kMostDepth = 100;

  Value();  // undefined, with no name
  Value(std::nullptr_t) : held_(std::monostate()) {}
  explicit Value(bool value) : held_(value) {}
  explicit Value(std::int64_t value) : held_(value) {}
  explicit Value(double value) : held_(value) {}
  explicit Value(MarkedText text) : held_(std::make_shared<const MarkedText>(std::move(text))) {}
  explicit Value(std::shared_ptr<Object> object) : held_(std::move(object)) {}
  // Throws Error(invalid_argument) for a value that lies too deep.
  static Value list(std::vector<Value> items, SequenceForm form = SequenceForm::list, std::string label = "");
  static Value mapping(std::shared_ptr<Mapping> mapping);
  static Value undefined(std::string why);
  static Value text(std::string_view text) { return Value(MarkedText(text)); }
  static Value count(std::size_t value) { return Value(static_cast<std::int64_t>(value)); }

  bool is_undefined() const { return held<std::shared_ptr<const Undefined>>() != nullptr; }
  bool is_none() const { return held<std::monostate>() != nullptr; }
  const bool* boolean() const { return held<bool>(); }
  const std::int64_t* integer() const { return held<std::int64_t>(); }  // not of a boolean
  const double* real() const { return held<double>(); }
  const MarkedText* marked() const { return pointed<const MarkedText>(); }
  Sequence* sequence() const { return pointed<Sequence>(); }
  Sequence* sequence(SequenceForm form) const;  // nullptr for another form, too
  Mapping* mapping() const { return pointed<Mapping>(); }
  const Undefined* missing() const { return pointed<const Undefined>(); }
  Object* object() const { return pointed<Object>(); }
  const std::shared_ptr<Object>* shared_object() const { return held<std::shared_ptr<Object>>(); }

  // A boolean counts as a number, as it does in Python.
  std::optional<std::int64_t> whole() const;
  std::optional<double> number() const;
  bool is_list_or_tuple() const;
  int depth() const;
  bool truth() const;
  // "str", "int", "dict", "NoneType": for messages.
  std::string type_name() const;
  // The same value; of what is shared, the same thing.
  bool is_same(const Value& other) const;

 private:
  template <class T>
  const T* held() const {
    return std::get_if<T>(&held_);
  }
  template <class T>
  T* pointed() const {
    const auto* owner = std::get_if<std::shared_ptr<T>>(&held_);
    return owner == nullptr ? nullptr : owner->get();
  }

  std::variant<std::monostate, bool, std::int64_t, double, std::shared_ptr<const Undefined>,
               std::shared_ptr<const MarkedText>, std::shared_ptr<Sequence>, std::shared_ptr<Mapping>,
               std::shared_ptr<Object>>
      held_;
};

struct Sequence {
  using Form = SequenceForm;
  Form form = Form::list;
  std::vector<Value> items;
  std::string label;      // how a range prints; kGroupLabel
  std::size_t taken = 0;  // of a generator
  int depth = 1;
};

// The label of the pairs that the filter groupby gives: their items have names.
inline constexpr std::string_view kGroupLabel = "group";

class Mapping {
 public:
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);  // replaces what has an equal key
  const std::vector<std::pair<Value, Value>>& items() const { return items_; }
  std::size_t size() const { return items_.size(); }
  int depth = 1;

 private:
  std::vector<std::pair<Value, Value>> items_;
  std::unordered_map<std::string, std::size_t> places_;  // by key_text
};

// A text that is the same for keys that are equal in Python: 1, 1.0 and True. nullopt: no key, for instance a list.
std::optional<std::string> key_text(const Value& key);

}  // namespace kvtide::jinja
