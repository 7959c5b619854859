// Norms: of the stream, of what a part gives, of heads.
#include "base/text.h"
#include "validate/mistakes.h"

namespace kvtide {
namespace {

using Part = Twist::Part;

const char* name_of(Part part) {
  return part == Part::attention      ? "attention"
         : part == Part::feed_forward ? "feed-forward"
                                      : "attention and feed-forward";
}
std::string norm_of(Part part) {
  return part == Part::attention      ? "the norm before attention"
         : part == Part::feed_forward ? "the norm before the feed-forward"
                                      : "both norms";
}

std::vector<Mistake> of_part(Part part) {
  const auto of = [&](const char* cause, std::string what, const char* advice, Slip slip,
                      double number = 0.0) {
    return Mistake{
        cause, name_of(part), std::move(what), advice, {.slip = slip, .number = number, .part = part}};
  };
  const std::string norm = norm_of(part), is = part == Part::all ? " are" : " is";
  std::vector<Mistake> out = {
      of("norm_skipped", norm + is + " skipped", "Norm the stream before the part reads it.",
         Slip::norm_skipped),
      of("norm_weight", norm + (part == Part::all ? " lack their weights" : " lacks its weight"),
         "Multiply by the norm's weight.", Slip::norm_weight_ignored),
      of("norm_weight", cat("1 is added to the weight of ", norm),
         "Only Gemma's norms add 1 to the stored weight, and files may have done so already.",
         Slip::norm_weight_plus, 1.0),
      of("norm_weight", cat("the weight of ", norm, " lacks the 1 that is added to it"),
         "Gemma's norms multiply by 1 + weight.", Slip::norm_weight_plus, -1.0),
      of("norm_kind",
         norm + (part == Part::all ? " do not take the mean off" : " does not take the mean off"),
         "A layer norm takes the mean off before it divides.", Slip::norm_mean_kept),
      of("norm_kind", norm + (part == Part::all ? " take the mean off" : " takes the mean off"),
         "An RMS norm divides and takes nothing off.", Slip::norm_mean_taken),
      of("bias_dropped", cat("the bias of ", norm, " is missing"), "A layer norm adds its bias.",
         Slip::norm_bias_dropped),
      of("norm_skipped",
         cat("the norm behind ", part == Part::all ? "both parts" : name_of(part), " is skipped"),
         "This model norms what a part gives before it is added to the stream.", Slip::post_norm_skipped),
  };
  for (const double epsilon : {1e-12, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2})
    out.push_back(of("norm_epsilon", cat("the epsilon of ", norm, " is ", epsilon),
                     "Take epsilon from the configuration (rms_norm_eps, layer_norm_epsilon).",
                     Slip::norm_epsilon, epsilon));
  return out;
}

}  // namespace

std::vector<Mistake> mistakes_of_norms() {
  std::vector<Mistake> out;
  for (const Part part : {Part::all, Part::attention, Part::feed_forward})
    for (Mistake& one : of_part(part)) out.push_back(std::move(one));
  const auto heads = [&](std::string what, Slip slip) {
    out.push_back({"head_norm",
                   "attention",
                   std::move(what),
                   "This model norms every query and key head, before the rotation.",
                   {.slip = slip}});
  };
  heads("the norm of query heads is skipped", Slip::query_norm_skipped);
  heads("the norm of key heads is skipped", Slip::key_norm_skipped);
  heads("the norms of query and key heads are skipped", Slip::head_norms_skipped);
  heads("query and key heads are normed behind the rotation", Slip::head_norms_late);
  return out;
}

}  // namespace kvtide
