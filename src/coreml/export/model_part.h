// model_part.h: a part of a model as a program by the contract of the shards: some of its layers, with the embedding before
// them or the head behind them.
//
//   Package package = part_package(model, {.embeds = true, .first_layer = 0, .behind_layer = 2});
//
// One function, main, of operations that Core ML has since iOS 18. Keys and values are written by a product with the write mask and
// attention looks at all slots, so nothing in the program depends on how many tokens a call has. Heads of queries that share keys
// go through one product with them: keys are not repeated.
// The residual stream of models with norms behind their blocks (Gemma 3) leaves the range of f16. There all that is added to it is
// made smaller by a power of two, and the norms before the blocks do not see a difference.
// Compressed convolutional attention (ZAYA1) carries two states more (convolved_heads.h).
// Thread rules: one caller.
#pragma once

#include <string>
#include <vector>

#include "coreml/decode/masked_contract.h"
#include "coreml/export/weight_constants.h"
#include "coreml/program/package.h"
#include "model/config/config.h"
#include "model/weights.h"

namespace kvtide::coreml {

// How many tokens a call may have: a range, or the numbers in `listed`.
struct TokenSizes {
  std::int64_t least = 1, most = 4;
  std::vector<std::int64_t> listed = {};
};

struct ExportedModel {
  const ModelConfig& config;
  const Weights& weights;
  const WeightConstants& constants;
  TokenSizes tokens;
  MaskedContract contract;  // what all parts have in common
};

struct ModelPart {
  bool embeds = false;
  int first_layer = 0, behind_layer = 0;
  bool gives_logits = false;
  bool attention_only = false;  // what follows attention in its layers is not in the package
};

Package part_package(const ExportedModel& model, const ModelPart& part);

// What the residual stream is multiplied with.
double stream_scale_of(const ModelConfig& config);

}  // namespace kvtide::coreml
