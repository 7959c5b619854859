// most_likely.h: the largest of many logits.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

struct Candidate {
  TokenId id;
  float logit;
};

// The place of the first that is no number below infinity; their count where there is none.
std::size_t first_bad(std::span<const float> logits);

// The place of the largest number, the first of several; 0 where nothing is a number.
std::size_t highest(std::span<const float> logits);

// The `count` largest, or all there are: larger ones first, equal ones by id, so that the order is the same everywhere.
std::vector<Candidate> most_likely(std::span<const float> logits, std::size_t count);

}  // namespace kvtide
