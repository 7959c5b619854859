// item_path.h: "function.name" or 0: which part of an item a filter looks at.
#pragma once

#include <optional>
#include <vector>

#include "text/jinja/run.h"
#include "text/jinja/value.h"

namespace kvtide::jinja {

class ItemPath {
 public:
  ItemPath() = default;  // the item itself
  // `attribute`: a text with points, a whole number, or none. `fallback` stands for what is not there.
  ItemPath(Run& run, const Value& attribute, std::optional<Value> fallback = std::nullopt);
  Value of(Run& run, const Value& item) const;

 private:
  std::vector<Value> keys_;
  std::optional<Value> fallback_;
};

// The same, and texts as their lower case, unless they are to be told apart by it.
Value sort_key(Run& run, const ItemPath& path, const Value& item, bool by_case);

}  // namespace kvtide::jinja
