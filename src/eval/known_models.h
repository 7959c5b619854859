// known_models.h: shapes of models that people run, read as their config.json is: with layers that carry a state, latents,
// windows and experts. For plans without a file.
#pragma once

#include <span>
#include <string_view>

#include "model/config/config.h"

namespace kvtide {

struct KnownModel {
  std::string_view name;    // "lfm2-1.2b"
  std::string_view config;  // what of its config.json decides the shape
};

std::span<const KnownModel> known_models();
ModelConfig config_of(const KnownModel& model);

}  // namespace kvtide
