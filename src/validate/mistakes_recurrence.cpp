// Layers without attention: what they hand from token to token, and what they make of it.
#include <algorithm>

#include "base/text.h"
#include "validate/mistakes.h"

namespace kvtide {
namespace {

constexpr const char* kHandOn =
    "What a layer carries goes from call to call: keep it in the state, and begin every call with it.";
constexpr const char* kGate = "What the heads read is normed first, then multiplied by silu of the gate.";

constexpr const char* kLateNorm = "Of Mamba-2 what the heads read is gated first, then normed.";

}  // namespace

std::vector<Mistake> mistakes_of_recurrence(const Schedule& schedule) {
  const std::vector<Pos> starts = schedule.starts();
  const auto start_of = [starts](Pos t) { return *(std::upper_bound(starts.begin(), starts.end(), t) - 1); };
  const auto forgets = [&](const char* cause, const char* what, Slip slip) {
    return Mistake{cause, "attention", what, kHandOn, {.carried_from = start_of, .slip = slip}, true};
  };
  const auto of = [](const char* cause, const char* what, const char* advice, Slip slip) {
    return Mistake{cause, "attention", what, advice, {.slip = slip}};
  };
  return {
      forgets("history_dropped", "the convolution sees nothing of earlier calls", Slip::history_forgotten),
      forgets("recurrent_state_dropped", "the matrix of every head begins every call with zeros",
              Slip::state_forgotten),
      forgets("recurrent_state_dropped", "every call begins with a new convolution and new matrices",
              Slip::carried_forgotten),
      of("recurrent_decay", "the matrix of every head decays twice for each token",
         "A token multiplies the matrix by its decay once.", Slip::state_decayed_twice),
      of("recurrent_decay", "the matrix of every head does not decay",
         "A token multiplies the matrix by exp(decay * softplus(...)).", Slip::state_not_decayed),
      of("recurrent_order", "queries read the matrix before the token was written into it",
         "Write the token into the matrix, then read it.", Slip::state_read_before),
      of("delta_rule", "values are added without taking off what the matrix gives for their key",
         "The rule adds the difference between the value and what the decayed matrix gives for the key.",
         Slip::delta_ignored),
      of("delta_rule", "what is written is not multiplied by beta",
         "Multiply the difference by sigmoid(beta).", Slip::rate_ignored),
      of("delta_rule", "queries and keys do not have length 1", "Divide queries and keys by their length.",
         Slip::keys_not_normed),
      of("group_mapping", "value heads read other key heads",
         "Folders have the value heads of a key head side by side, GGUF files one of each in turn.",
         Slip::value_heads_grouped),
      of("activation", "the activation behind the convolution is missing",
         "silu follows the convolution of queries, keys and values.", Slip::activation_skipped),
      of("recurrent_gate", "what the heads read is gated before it is normed", kGate, Slip::gate_before_norm),
      of("recurrent_gate", "the gate is missing", kGate, Slip::gate_skipped),
      of("recurrent_gate", "what the heads read is normed before it is gated", kLateNorm,
         Slip::gate_behind_norm),
      of("recurrent_norm", "one norm goes over all groups of heads",
         "The norm behind Mamba-2's gate is that of every group by itself.", Slip::groups_normed_together),
      of("recurrent_step", "the bias of the steps is missing",
         "A step is softplus of the projection plus dt_bias.", Slip::time_bias_dropped),
      of("recurrent_skip", "what goes past the matrix is missing",
         "What a head puts in is multiplied by D and added to what it reads.", Slip::skip_dropped),
      of("convolution", "the two gates of the convolution have changed places",
         "The first third gates what enters the convolution, the second what leaves it.",
         Slip::convolution_gates_swapped),
  };
}

}  // namespace kvtide
