// measure.h: how alike two vectors are, and from when on that is not alike enough.
//
// Sums in double.
// Thread rules: pure functions.
#pragma once

#include <span>

namespace kvtide {

struct Likeness {
  double cosine = 1.0;    // -1 when a number is not finite
  double max_abs = 0.0;   // of the difference
  double distance = 0.0;  // |a - b|
  double length = 0.0;    // |b|
  double ratio = 1.0;     // |a| / |b|
  double relative() const { return length > 0.0 ? distance / length : distance > 0.0 ? 1e30 : 0.0; }
};

// b: what is right.
Likeness likeness(std::span<const float> a, std::span<const float> b);

// Of what a layer adds: out - in, against wanted_out - wanted_in. When the change is so small against the
// stream that its type cannot hold its direction, the noise is taken off the distance from 1 of cosine and
// ratio. rounding: ValidateOptions::stream_rounding.
Likeness likeness_of_change(std::span<const float> in, std::span<const float> out,
                            std::span<const float> wanted_in, std::span<const float> wanted_out,
                            double rounding);

// The relative error of vectors of equal length whose cosine is `gate`.
double relative_of(double gate);
// Whether such a gate is one of bf16 or 8-bit products, or of 8-bit rows.
inline bool is_coarse(double gate) { return gate <= 0.999; }

// Direction and length: a vector may be longer or shorter by twice the relative error that the gate allows.
bool alike(const Likeness& found, double gate);

// Equal up to the rounding of another order of sums.
bool same_numbers(std::span<const float> a, std::span<const float> b);

}  // namespace kvtide
