// measured_losses.h: what memories of some sizes cost the models that the program comes with tables for.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "kvtide/types.h"

namespace kvtide {

struct MeasuredLoss {
  double share;       // of the bytes of a full f16 cache
  double kl;          // nats per token, against the full cache
  double perplexity;  // relative to the full cache's: 0.01 is 1% more
};

// One model and one length of text; shares ascend.
struct MeasuredLosses {
  std::string_view model;  // SHA-256 of the model file
  std::string_view name;
  Pos tokens;
  std::span<const MeasuredLoss> losses;
};

// In measured_losses_table.cpp.
std::span<const MeasuredLosses> measured_losses();

struct ExpectedLoss {
  double kl, perplexity;
  const MeasuredLosses* measured;
  bool same_model;
};

// Of a memory of this share, for a text of `tokens`: from the length that was measured nearest, between two shares in
// proportion of their logarithms. A model that was not measured is told the losses of the first in the table. nullopt:
// so small a share was not measured.
std::optional<ExpectedLoss> expected_loss(std::string_view model_hash, Pos tokens, double share);

}  // namespace kvtide
