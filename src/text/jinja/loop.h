// loop.h: what a template can ask of the loop that it is in.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja/object.h"

namespace kvtide::jinja {

struct Loop final : Object {
  explicit Loop(std::vector<Value> all) : items(std::move(all)) {}
  static Value value(const std::shared_ptr<Loop>& loop);

  std::string_view type_name() const override { return "LoopContext"; }
  bool is_callable() const override { return false; }
  std::optional<Value> attribute(Run& run, std::string_view name) override;

  std::vector<Value> items;
  std::size_t at = 0;
  std::optional<Value> last_changed;  // the arguments of loop.changed()
  std::weak_ptr<Loop> self;
};

}  // namespace kvtide::jinja
