// Projections, heads and scores.
#include "base/text.h"
#include "validate/mistakes.h"

namespace kvtide {
namespace {

Mistake of(const char* cause, std::string what, std::string advice, Slip slip, double number = 0.0) {
  return {cause, "attention", std::move(what), std::move(advice), {.slip = slip, .number = number}};
}

std::vector<Mistake> of_scores() {
  constexpr const char* kScale =
      "Scores are multiplied by the model's scale once: 1 / sqrt(head size), or what the configuration says "
      "(query_pre_attn_scalar).";
  std::vector<Mistake> out = {
      of("attention_scale", "the scores are not scaled", kScale, Slip::score_unscaled),
      of("attention_scale", "the scores are scaled twice", kScale, Slip::score_scaled_twice),
      of("attention_scale",
         "the scores are multiplied by 1 / sqrt(head size), and the model's scale is another", kScale,
         Slip::score_scaled_by_head),
      of("attention_sinks", "the learned sinks do not take part in the softmax",
         "The sink of a head is one score more in its denominator, without a value.", Slip::sinks_ignored),
      of("norm_skipped", "the latents are not normed",
         "Norm the latent before keys and values are made of it.", Slip::latent_norm_skipped),
      of("softmax_precision", "the weights of the softmax are rounded to bf16", "Keep the softmax in f32.",
         Slip::softmax_bf16),
      of("softmax_precision", "the weights of the softmax are rounded to f16", "Keep the softmax in f32.",
         Slip::softmax_f16),
      of("rows_rounded", "keys and values are rounded to int8, one scale a row",
         "Keep rows in f16 or f32, or compare with a gate for 8-bit rows.", Slip::rows_int8),
  };
  for (const double cap : {20.0, 30.0, 50.0})
    out.push_back(of("attention_softcap", cat("the scores are squashed by ", cap, " tanh(x / ", cap, ")"),
                     "This model does not cap its scores.", Slip::score_cap, cap));
  return out;
}

}  // namespace

std::vector<Mistake> mistakes_of_attention() {
  constexpr const char* kBias = "Add the bias of every projection that has one.";
  std::vector<Mistake> out = {
      of("group_mapping", "query head h reads KV head h % KV heads instead of h / (heads / KV heads)",
         "Heads of a group are neighbours: repeat every KV head (repeat_interleave), do not tile them.",
         Slip::groups_by_remainder),
      of("keys_and_values_swapped", "keys and values have changed places",
         "Look at the order in which a projection is split, or at which weight is which.",
         Slip::keys_and_values_swapped),
      of("heads_permuted", "queries are split as [dim, heads] instead of [heads, dim]",
         "A projection's outputs are heads times dimensions, heads outside.", Slip::query_heads_mixed),
      of("bias_dropped", "the biases of queries, keys and values are missing", kBias,
         Slip::projection_biases_dropped),
      of("bias_dropped", "the bias of queries is missing", kBias, Slip::query_bias_dropped),
      of("bias_dropped", "the bias of keys is missing", kBias, Slip::key_bias_dropped),
      of("bias_dropped", "the bias of values is missing", kBias, Slip::value_bias_dropped),
      of("bias_dropped", "the bias of attention's output is missing", kBias, Slip::output_bias_dropped),
      of("convolution", "queries and keys are not convolved",
         "Queries and keys go through both convolutions.", Slip::convolution_skipped),
      of("convolution", "the taps of the convolutions are read newest first",
         "Tap 0 belongs to the older column.", Slip::convolution_reversed),
      of("key_temperature", "keys are not multiplied by their temperature",
         "The temperature of every KV head multiplies its normed keys.", Slip::temperature_ignored),
      of("values_delayed", "the delayed half of the values is that of the token itself",
         "Half of the values come from the token before.", Slip::values_not_delayed),
  };
  out.back().twist.part = out[7].twist.part = Twist::Part::attention;
  for (const int by : {1, -1, 2})
    for (const Slip slip : {Slip::query_heads_rolled, Slip::output_heads_rolled})
      out.push_back(of("heads_permuted",
                       cat(slip == Slip::query_heads_rolled ? "query heads" : "heads of what attention gives",
                           " have moved by ", by),
                       "Heads are in another order than the weights of the output want.", slip, by));
  for (Mistake& one : of_scores()) out.push_back(std::move(one));
  return out;
}

}  // namespace kvtide
