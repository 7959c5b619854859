#include "coreml/program/description.h"

namespace kvtide::coreml {

const FunctionDescription* Description::function(std::string_view wanted) const {
  for (const auto& each : functions)
    if (each.name == wanted) return &each;
  return nullptr;
}

}  // namespace kvtide::coreml
