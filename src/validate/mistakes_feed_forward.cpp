// Feed-forwards, experts, and where the parts of a layer meet.
#include "base/text.h"
#include "validate/mistakes.h"

namespace kvtide {
namespace {

using Part = Twist::Part;

std::vector<Mistake> of_joins() {
  std::vector<Mistake> out;
  for (const Part part : {Part::attention, Part::feed_forward, Part::all}) {
    const std::string name = part == Part::attention      ? "attention"
                             : part == Part::feed_forward ? "feed-forward"
                                                          : "attention and feed-forward";
    const auto of = [&](const char* cause, std::string what, const char* advice, Slip slip) {
      out.push_back({cause, name, std::move(what), advice, {.slip = slip, .part = part}});
    };
    of("residual", cat("behind ", name, " the stream is not added"),
       "What a part gives is added to the stream.", Slip::residual_dropped);
    of("residual", cat("behind ", name, " the stream is added twice"), "The stream is added once.",
       Slip::residual_twice);
    of("residual", cat("behind ", name, " the normed stream goes on instead of the stream"),
       "The stream that is added is the one before the norm.", Slip::residual_normed);
    of("residual_scale", cat("behind ", name, " the model's scales and offsets are missing"),
       "This model scales what a part gives and the stream where they meet.", Slip::residual_unscaled);
  }
  out.push_back({"residual",
                 "feed-forward",
                 "the feed-forward reads what entered the layer, not what attention left",
                 "The feed-forward follows attention: it reads the stream behind it.",
                 {.slip = Slip::parallel}});
  return out;
}

std::vector<Mistake> of_experts() {
  const auto of = [](const char* cause, const char* what, const char* advice, Slip slip) {
    return Mistake{cause, "feed-forward", what, advice, {.slip = slip}};
  };
  return {
      of("expert_choice", "the second expert is taken",
         "The expert with the largest probability plus balance is taken.", Slip::second_expert),
      of("expert_choice", "the balance does not count for the choice",
         "The balance is added before the choice.", Slip::balance_ignored),
      of("expert_choice", "experts of all groups can be chosen",
         "Only experts of the best groups can be chosen (n_group, topk_group).", Slip::expert_groups_ignored),
      of("activation", "gate and up of the experts are not clamped",
         "The gate is clamped from above, up from both sides (swiglu_limit).", Slip::gate_unclamped),
      of("expert_share", "the expert's result is not multiplied by its probability",
         "Multiply by the probability, without the balance.", Slip::share_ignored),
      of("router_carry", "the router does not add what the router of the layer before had",
         "Hand the router's states from layer to layer.", Slip::carry_dropped),
      of("skip_slot", "the slot behind the last expert gives what it should not",
         "The configuration says whether the slot gives nothing or its input.", Slip::skip_otherwise),
  };
}

}  // namespace

std::vector<Mistake> mistakes_of_feed_forward() {
  std::vector<Mistake> out;
  for (const auto& [kind, name] : {std::pair(ActivationKind::silu, "silu"),
                                   {ActivationKind::gelu_tanh, "gelu (tanh)"},
                                   {ActivationKind::gelu_erf, "gelu (erf)"},
                                   {ActivationKind::quick_gelu, "quick gelu"},
                                   {ActivationKind::relu, "relu"},
                                   {ActivationKind::squared_relu, "the square of relu"},
                                   {ActivationKind::none, "missing"}})
    out.push_back({"activation",
                   "feed-forward",
                   cat("the activation is ", name),
                   "Take the activation from the configuration (hidden_act, activation_function).",
                   {.slip = Slip::activation, .number = static_cast<double>(kind)}});
  out.push_back({"gate_and_up_swapped",
                 "feed-forward",
                 "gate and up have changed places",
                 "The gate is what the activation is applied to.",
                 {.slip = Slip::gate_and_up_swapped}});
  out.push_back({"bias_dropped",
                 "feed-forward",
                 "the biases of the feed-forward are missing",
                 "Add the bias of every projection that has one.",
                 {.slip = Slip::output_bias_dropped, .part = Part::feed_forward}});
  for (Mistake& one : of_experts()) out.push_back(std::move(one));
  for (Mistake& one : of_joins()) out.push_back(std::move(one));
  return out;
}

}  // namespace kvtide
