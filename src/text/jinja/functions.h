// functions.h: what every template can call by name: range, dict, namespace, cycler, joiner, raise_exception,
// strftime_now.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/object.h"
#include "text/jinja/run.h"

namespace kvtide::jinja {

std::optional<Value> find_function(std::string_view name);

// What a template can assign to: ns.count = 1. The run owns the attributes, which may hold the namespace itself.
struct Namespace final : Object {
  explicit Namespace(std::shared_ptr<Scope> values) : attributes(std::move(values)) {}
  std::string_view type_name() const override { return "Namespace"; }
  bool is_callable() const override { return false; }
  std::optional<Value> attribute(Run& run, std::string_view name) override;
  std::string printed(Run& run) const override;

  std::shared_ptr<Scope> attributes;
};

// The time as strftime of C writes it. Throws by way of the run when the run has no clock.
MarkedText time_text(Run& run, std::string_view format);

}  // namespace kvtide::jinja
