#include "coreml/program/program.h"

namespace kvtide::coreml {
namespace {

template <class Items>
auto named(const Items& items, std::string_view wanted) -> decltype(items.data()) {
  for (const auto& item : items)
    if (item.name == wanted) return &item;
  return nullptr;
}

}  // namespace

const Argument* Operation::input(std::string_view wanted) const { return named(inputs, wanted); }

const Value* Operation::attribute(std::string_view wanted) const {
  const Attribute* found = named(attributes, wanted);
  return found ? &found->value : nullptr;
}

const Function* Program::function(std::string_view wanted) const { return named(functions, wanted); }

}  // namespace kvtide::coreml
