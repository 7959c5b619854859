// mistakes.h: what ports get wrong in the arithmetic, as ways to compute the reference wrongly (Twist), with
// the name and the sentences that a finding then has. One file per family.
//
// Ownership: plain values; a Mistake owns what its twist refers to.
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvtide/validate.h"
#include "validate/runs.h"

namespace kvtide {

struct Mistake {
  std::string cause;  // docs/validator.md
  std::string part;   // "attention", "feed-forward", "attention and feed-forward"; empty: neither
  std::string what;   // "the scores are not multiplied by the scale"
  std::string advice;
  Twist twist;
  bool of_calls = false;  // it depends on how the text is cut
  // Without the rows of the state it cannot be told from a state that lost them: past_unseen.
  bool needs_rows = false;
};

struct Fit {
  Mistake mistake;
  double share = 0.0;  // of the difference that it explains
  double left = 0.0;   // what is not explained, relative
};

// mistakes_masks.cpp: what attention sees, and where it stands, by how the text is cut.
std::vector<Mistake> mistakes_of_masks(const Schedule& schedule);
// mistakes_rotation.cpp
std::vector<Mistake> mistakes_of_rotation(std::int64_t head_dim);
// mistakes_attention.cpp: projections, heads, scores.
std::vector<Mistake> mistakes_of_attention();
// mistakes_norms.cpp
std::vector<Mistake> mistakes_of_norms();
// mistakes_recurrence.cpp: layers that carry a history or a matrix instead.
std::vector<Mistake> mistakes_of_recurrence(const Schedule& schedule);
// mistakes_feed_forward.cpp: activations, experts, and where the parts meet.
std::vector<Mistake> mistakes_of_feed_forward();
// mistakes_around.cpp: before and behind the layers, and layers that changed places.
std::vector<Mistake> mistakes_of_embedding(const Schedule& schedule);
std::vector<Mistake> mistakes_of_head();
std::vector<Mistake> mistakes_of_order(int layer, int layers);

// All of a layer's.
std::vector<Mistake> mistakes_of_layer(const Schedule& schedule, std::int64_t head_dim, int layer,
                                       int layers);
// Of the whole model: every layer, what is before them and behind.
std::vector<Mistake> mistakes_of_model(const Schedule& schedule, std::int64_t head_dim);

}  // namespace kvtide
