// How queries and keys are rotated.
#include "base/text.h"
#include "validate/mistakes.h"

namespace kvtide {
namespace {

Mistake turned(const char* cause, std::string what, std::string advice, Slip slip, double number = 0.0) {
  return {cause, "attention", std::move(what), std::move(advice), {.slip = slip, .number = number}};
}

}  // namespace

std::vector<Mistake> mistakes_of_rotation(std::int64_t head_dim) {
  constexpr const char* kConfig =
      "Take it from the model's configuration (rope_theta, rope_parameters, rope.freq_base).";
  std::vector<Mistake> out = {
      turned("rope_pairing",
             "pairs of a rotation are those of the other layout, (2 i, 2 i + 1) for (i, i + half)",
             "Weights that come from Hugging Face want halves, (i, i + half); those of other files may want "
             "neighbours, (2 i, 2 i + 1).",
             Slip::rope_paired_otherwise),
      turned("rope_sign", "queries and keys are rotated backwards",
             "The rotation is (a cos - b sin, a sin + b cos): look at the sign of the sine.",
             Slip::rope_backwards),
      turned("rope_skipped", "queries and keys are not rotated", "Rotate queries and keys before attention.",
             Slip::rope_skipped),
      turned("rope_scaling", "the angles lack the model's scaling",
             "The configuration scales the angles (rope_scaling: linear, llama3, yarn): apply it.",
             Slip::rope_unscaled),
      turned("rope_scaling", "the rotated rows lack the length that the model's scaling gives them",
             "YaRN multiplies cosine and sine by 0.1 ln(factor) + 1.", Slip::rope_unmagnified),
      turned("rope_theta", "the angles are those of the model's other kind of layers",
             "Local and global layers have a base of their own each.", Slip::rope_of_other_layers),
      turned("rope_precision", "the angles are computed in f16",
             "Positions times frequencies want f32: 11 bits do not hold an angle.", Slip::angles_f16),
      turned("rope_precision", "the angles are computed in bf16",
             "Positions times frequencies want f32: 8 bits do not hold an angle.", Slip::angles_bf16),
  };
  for (const double base : {500.0, 1e3, 5e3, 1e4, 1e5, 5e5, 1e6, 5e6, 1e7})
    out.push_back(
        turned("rope_theta", cat("the base of the rotation is ", base), kConfig, Slip::rope_base, base));
  for (const double factor : {0.125, 0.25, 0.5, 2.0, 4.0, 8.0})
    out.push_back(turned("rope_scaling", cat("all angles are ", factor, " times what they should be"),
                         "Look at the factor of linear scaling: positions are divided by it, once.",
                         Slip::rope_stretched, factor));
  for (const std::int64_t pairs : {head_dim / 2, head_dim / 4, head_dim / 8})
    if (pairs > 0)
      out.push_back(
          turned("rope_width", cat(2 * pairs, " dimensions of the ", head_dim, " of a head are rotated"),
                 "The rotated width is part of the model (partial_rotary_factor, rope.dimension_count); "
                 "the frequencies follow from it, not from the size of a head.",
                 Slip::rope_width, static_cast<double>(pairs)));
  return out;
}

}  // namespace kvtide
