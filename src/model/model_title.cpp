#include "model/model_title.h"

namespace kvtide {

std::string model_title(std::string_view name) {
  if (name == "Smollm2 135M 8k Lc100K Mix1 Ep2") return "SmolLM2-135M";
  if (name == "Gemma 3 270m") return "Gemma-3-270M";
  return std::string(name);
}

}  // namespace kvtide
