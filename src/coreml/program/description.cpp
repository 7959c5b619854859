#include "coreml/program/description.h"

namespace kvtide::coreml {

const FunctionDescription* Description::function(std::string_view wanted) const {
  for (const auto& each : functions)
    if (each.name == wanted) return &each;
  return nullptr;
}

const Feature* feature_named(const std::vector<Feature>& features, std::string_view name) {
  for (const Feature& each : features)
    if (each.name == name) return &each;
  return nullptr;
}

}  // namespace kvtide::coreml
