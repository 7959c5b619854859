// router_ties.h: routers that were nearly indifferent, and a model that took the other expert.
//
// Such a choice is rounding, not a fault, and all that follows from it is right when it is right along that
// choice. So a chain of layers is compared with the reference that takes the same experts. A reference of
// arrays cannot take others: from such a place on its chain is not judged layer by layer any more.
// Ownership: a Course shares the reference's results.
// Thread rules: one caller at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kvtide/validate.h"
#include "validate/runs.h"

namespace kvtide {

// What a router may prefer an expert by and still take another in arithmetic of this gate.
double tie_of(double gate);

// The reference along the experts that a chain of layers took.
struct Course {
  std::shared_ptr<const Golden> golden;
  std::vector<RouterChoice> choices;  // that are other than the reference's own
  std::optional<RouterChoice> open;   // the first that the reference could not follow

  // Whether the stream behind `layer` (layer == layers: logits) can be compared.
  bool judges(std::int64_t layer, Pos token) const {
    return !open || layer < open->layer || token < open->token;
  }
};

// start: where to begin, as a rule the course of the same text cut otherwise. The run must have the stream.
Course follow(Reference& reference, std::span<const TokenId> tokens, const Course& start, const Run& run,
              double gate);

}  // namespace kvtide
