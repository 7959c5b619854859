// run.h: one rendering: its limits, what it has used of them, and where it is.
//
// Ownership: refers to the limits. Thread rules: belongs to one thread.
// Every refusal is an Error(invalid_argument) that names the line of the template.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/limits.h"
#include "text/jinja/value.h"

namespace kvtide::jinja {

struct Scope;

class Run {
 public:
  explicit Run(const RenderLimits& limits, std::optional<std::tm> now = std::nullopt)
      : limits_(limits), now_(now) {}
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  void at(int line) { line_ = line; }
  int line() const { return line_; }
  [[noreturn]] void refuse(const std::string& why) const;
  // A name that is not defined has no attributes, is no number and cannot be called.
  void refuse_undefined(const Value& value) const;

  // One unit of work; `bytes` that a value took; both are limited in sum.
  void step(std::size_t count = 1);
  void charge(std::size_t bytes);
  // Of a text about to be made; refuses before it is.
  Value made(MarkedText text) {
    charge(text.size() + 24 * text.given.size());
    return Value(std::move(text));
  }
  Value made(std::vector<Value> items, Sequence::Form form = Sequence::Form::list) {
    charge(items.size() * sizeof(Value));
    return Value::list(std::move(items), form);
  }

  const std::optional<std::tm>& now() const { return now_; }
  // What can hold itself, by way of what it holds: it is emptied at the end.
  void own(std::shared_ptr<Scope> scope) { scopes_.push_back(std::move(scope)); }

  // Counts how deep calls of the interpreter lie in each other.
  class Deeper {
   public:
    explicit Deeper(Run& run) : run_(run) {
      if (++run_.depth_ > kMostDepth) run_.refuse_depth();
    }
    ~Deeper() { --run_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Run& run_;
  };

 private:
  static constexpr int kMostDepth = 600;
  [[noreturn]] void refuse_depth() const;

  const RenderLimits& limits_;
  std::optional<std::tm> now_;
  std::vector<std::shared_ptr<Scope>> scopes_;
  std::size_t steps_ = 0, bytes_ = 0;
  int line_ = 1, depth_ = 0;
};

// Names and their values, one scope inside another. Namespaces keep their attributes in one, too.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> values;

  Value* find_here(std::string_view name) {
    for (auto& [key, value] : values)
      if (key == name) return &value;
    return nullptr;
  }
  Value* find(std::string_view name) {
    for (Scope* scope = this; scope != nullptr; scope = scope->parent.get())
      if (Value* found = scope->find_here(name)) return found;
    return nullptr;
  }
  void set(std::string_view name, Value value) {
    if (Value* found = find_here(name))
      *found = std::move(value);
    else
      values.emplace_back(std::string(name), std::move(value));
  }
};

}  // namespace kvtide::jinja
