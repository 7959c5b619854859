// hybrid_names.h: how shards call the tensors of compressed convolutional attention (cca.h), routed experts
// (experts.h) and scaled residual streams (residual.h).
//
// Pure functions.
// Invariant: the name of a matrix that is multiplied ends in ".weight"; it may hold 8-bit integers, with
// their scales in "<name>_scale". A convolution is taken element by element: its name ends otherwise, and it
// is floats.
#pragma once

#include <string>

#include "model/config/tensor_rules.h"

namespace kvtide {

// Throws std::logic_error for a role that is not one of these.
std::string hybrid_name(Role role);
// `part`: "gate", "up", "down".
std::string expert_name(int expert, const char* part);

inline constexpr const char* kResidualNames[] = {"output_scale", "output_offset", "residual_scale",
                                                 "residual_offset"};

}  // namespace kvtide
