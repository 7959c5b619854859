#include "text/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "kvtide/error.h"
#include "text/jinja/object.h"

namespace kvtide::jinja {
namespace {

void check_depth(int depth) {
  if (depth > Value::kMostDepth)
    throw Error(ErrorCode::invalid_argument,
                cat("chat template: a value has more than ", Value::kMostDepth, " levels of lists in lists"));
}

}  // namespace

std::optional<std::string> key_text(const Value& key) {
  if (const MarkedText* text = key.marked()) return "s" + text->bytes;
  if (const auto whole = key.whole()) return cat("n", *whole);
  if (const double* real = key.real()) {
    if (std::floor(*real) == *real && std::fabs(*real) < 9e18)
      return cat("n", static_cast<std::int64_t>(*real));
    char digits[40];
    return "n" + std::string(digits, std::to_chars(digits, digits + sizeof digits, *real).ptr);
  }
  if (key.is_none()) return "none";
  if (key.is_undefined()) return "undefined";
  if (const Sequence* tuple = key.sequence(Sequence::Form::tuple)) {
    std::string all = "t";
    for (const Value& item : tuple->items) {
      const auto one = key_text(item);
      if (!one) return std::nullopt;
      all += cat(one->size(), ":", *one);
    }
    return all;
  }
  if (const Object* object = key.object()) return cat("o", reinterpret_cast<std::uintptr_t>(object));
  return std::nullopt;
}

const Value* Mapping::find(const Value& key) const {
  const auto text = key_text(key);
  if (!text) return nullptr;
  const auto found = places_.find(*text);
  return found == places_.end() ? nullptr : &items_[found->second].second;
}

const Value* Mapping::find(std::string_view key) const {
  std::string text = "s";
  text += key;
  const auto found = places_.find(text);
  return found == places_.end() ? nullptr : &items_[found->second].second;
}

void Mapping::set(Value key, Value value) {
  const auto text = key_text(key);
  if (!text)
    throw Error(ErrorCode::invalid_argument, cat("chat template: unhashable type: '", key.type_name(), "'"));
  depth = std::max({depth, 1 + key.depth(), 1 + value.depth()});
  check_depth(depth);
  const auto [place, is_new] = places_.try_emplace(*text, items_.size());
  if (is_new)
    items_.emplace_back(std::move(key), std::move(value));
  else
    items_[place->second].second = std::move(value);
}

Value::Value() : held_(std::make_shared<const Undefined>()) {}

Value Value::list(std::vector<Value> items, Sequence::Form form, std::string label) {
  auto sequence = std::make_shared<Sequence>();
  sequence->form = form;
  sequence->label = std::move(label);
  for (const Value& item : items) sequence->depth = std::max(sequence->depth, 1 + item.depth());
  check_depth(sequence->depth);
  sequence->items = std::move(items);
  Value value = nullptr;
  value.held_ = std::move(sequence);
  return value;
}

Value Value::mapping(std::shared_ptr<Mapping> mapping) {
  Value value = nullptr;
  value.held_ = std::move(mapping);
  return value;
}

Value Value::undefined(std::string why) {
  Value value = nullptr;
  value.held_ = std::make_shared<const Undefined>(Undefined{std::move(why)});
  return value;
}

Sequence* Value::sequence(SequenceForm form) const {
  Sequence* found = sequence();
  return found != nullptr && found->form == form ? found : nullptr;
}

std::optional<std::int64_t> Value::whole() const {
  if (const bool* flag = boolean()) return *flag ? 1 : 0;
  if (const std::int64_t* value = integer()) return *value;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto value = whole()) return static_cast<double>(*value);
  if (const double* value = real()) return *value;
  return std::nullopt;
}

bool Value::is_list_or_tuple() const {
  return sequence(Sequence::Form::list) != nullptr || sequence(Sequence::Form::tuple) != nullptr;
}

int Value::depth() const {
  if (const Sequence* all = sequence()) return all->depth;
  if (const Mapping* all = mapping()) return all->depth;
  return 0;
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (const bool* flag = boolean()) return *flag;
  if (const std::int64_t* value = integer()) return *value != 0;
  if (const double* value = real()) return *value != 0;
  if (const MarkedText* value = marked()) return !value->empty();
  if (const Sequence* all = sequence()) return all->form == Sequence::Form::generator || !all->items.empty();
  if (const Mapping* all = mapping()) return all->size() > 0;
  return true;
}

std::string Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (boolean() != nullptr) return "bool";
  if (integer() != nullptr) return "int";
  if (real() != nullptr) return "float";
  if (const MarkedText* value = marked()) return value->escaped ? "Markup" : "str";
  if (mapping() != nullptr) return "dict";
  if (const Sequence* all = sequence()) {
    constexpr const char* kNames[] = {"list",        "tuple",      "generator", "dict_keys",
                                      "dict_values", "dict_items", "range"};
    return kNames[static_cast<std::size_t>(all->form)];
  }
  return std::string(object()->type_name());
}

bool Value::is_same(const Value& other) const {
  if (held_.index() != other.held_.index()) return false;
  if (const bool* flag = boolean()) return *flag == *other.boolean();
  if (const std::int64_t* value = integer()) return *value == *other.integer();
  if (const double* value = real()) return *value == *other.real();
  if (const MarkedText* value = marked()) return value->bytes == other.marked()->bytes;
  if (sequence() != nullptr) return sequence() == other.sequence();
  if (mapping() != nullptr) return mapping() == other.mapping();
  if (object() != nullptr) return object() == other.object();
  return is_none() || missing() == other.missing();
}

}  // namespace kvtide::jinja
