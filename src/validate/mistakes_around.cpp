// Before and behind the layers, and layers that changed places.
#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "validate/mistakes.h"

namespace kvtide {
namespace {

constexpr int kNear = 3;  // layers that may have changed places with one

void append(std::vector<Mistake>& to, std::vector<Mistake> from) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
}

}  // namespace

std::vector<Mistake> mistakes_of_embedding(const Schedule& schedule) {
  const auto starts = schedule.starts();
  const auto start_of = [starts](Pos t) { return *(std::upper_bound(starts.begin(), starts.end(), t) - 1); };
  constexpr const char* kPlace = "Token t of a call that begins at position n stands at n + t.";
  return {
      {"position_in_call",
       "",
       "positions are counted within the call",
       kPlace,
       {.position = [=](Pos t) { return t - start_of(t); }},
       true},
      {"position_off_by_one",
       "",
       "positions are one ahead",
       kPlace,
       {.slip = Slip::positions_shifted, .number = 1}},
      {"position_off_by_one",
       "",
       "positions are one behind",
       kPlace,
       {.slip = Slip::positions_shifted, .number = -1}},
      {"position_off_by_one",
       "",
       "from the second call on positions are one behind",
       kPlace,
       {.position = [=](Pos t) { return start_of(t) == 0 ? t : t - 1; }},
       true},
      {"position",
       "",
       "all tokens of a call stand at the position of its first",
       kPlace,
       {.position = start_of},
       true},
      {"position",
       "",
       "no positions but the first are used",
       kPlace,
       {.position = [](Pos) { return Pos{0}; }}},
  };
}

std::vector<Mistake> mistakes_of_head() {
  const auto of = [](const char* cause, std::string what, const char* advice, Slip slip,
                     double number = 0.0) {
    return Mistake{
        cause, "", std::move(what), advice, {.slip = slip, .number = number, .part = Twist::Part::head}};
  };
  std::vector<Mistake> out = {
      of("norm_skipped", "the last norm is skipped", "Norm the stream before the output matrix.",
         Slip::norm_skipped),
      of("norm_weight", "the last norm lacks its weight", "Multiply by the norm's weight.",
         Slip::norm_weight_ignored),
      of("norm_weight", "1 is added to the weight of the last norm",
         "Only Gemma's norms add 1 to the stored weight.", Slip::norm_weight_plus, 1.0),
      of("norm_weight", "the weight of the last norm lacks the 1 that is added to it",
         "Gemma's norms multiply by 1 + weight.", Slip::norm_weight_plus, -1.0),
      of("norm_kind", "the last norm does not take the mean off", "A layer norm takes the mean off.",
         Slip::norm_mean_kept),
      of("norm_kind", "the last norm takes the mean off", "An RMS norm divides and takes nothing off.",
         Slip::norm_mean_taken),
      of("bias_dropped", "the bias of the last norm is missing", "A layer norm adds its bias.",
         Slip::norm_bias_dropped),
      of("head_transposed", "the output matrix is read transposed",
         "A tied head is the embedding as it lies, [vocabulary, width], times the stream.",
         Slip::head_transposed),
  };
  for (const double cap : {15.0, 20.0, 30.0, 50.0})
    out.push_back(of("logit_softcap", cat("the logits are squashed by ", cap, " tanh(x / ", cap, ")"),
                     "This model does not cap its logits.", Slip::logit_cap, cap));
  for (const double epsilon : {1e-12, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2})
    out.push_back(of("norm_epsilon", cat("the epsilon of the last norm is ", epsilon),
                     "Take epsilon from the configuration.", Slip::norm_epsilon, epsilon));
  return out;
}

std::vector<Mistake> mistakes_of_order(int layer, int layers) {
  std::vector<Mistake> out;
  for (int other = std::max(0, layer - kNear); other < std::min(layers, layer + kNear + 1); ++other)
    if (other != layer)
      out.push_back({"layers_swapped",
                     "attention and feed-forward",
                     cat("the weights are those of layer ", other),
                     "Look at the order in which layers are loaded.",
                     {.slip = Slip::weights_of_other_layer, .number = static_cast<double>(other)}});
  return out;
}

std::vector<Mistake> mistakes_of_layer(const Schedule& schedule, std::int64_t head_dim, int layer,
                                       int layers) {
  std::vector<Mistake> out = mistakes_of_masks(schedule);
  append(out, mistakes_of_attention());
  append(out, mistakes_of_rotation(head_dim));
  append(out, mistakes_of_norms());
  append(out, mistakes_of_recurrence(schedule));
  append(out, mistakes_of_feed_forward());
  append(out, mistakes_of_order(layer, layers));
  return out;
}

std::vector<Mistake> mistakes_of_model(const Schedule& schedule, std::int64_t head_dim) {
  std::vector<Mistake> out = mistakes_of_layer(schedule, head_dim, 0, 0);
  append(out, mistakes_of_embedding(schedule));
  append(out, mistakes_of_head());
  const auto factor = [&](double number) {
    out.push_back({"embedding_scale",
                   "",
                   cat("the embedding is ", number, " times what it should be"),
                   "Look at the embedding's scale: Gemma multiplies by sqrt(width), others do not.",
                   {.slip = Slip::embedding_scale, .number = number}});
  };
  for (const double number : {0.5, 2.0}) factor(number);
  return out;
}

}  // namespace kvtide
