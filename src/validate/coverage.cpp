// What a validation reached, so that nobody takes for tested what was not; and whether a model gives the same
// numbers twice, without which nothing else can be said.
#include <algorithm>
#include <set>

#include "base/text.h"
#include "validate/inspection.h"

namespace kvtide {
namespace {

// A counter in bf16 stands still at 256, one in f16 at 2048.
constexpr std::int64_t kBf16Counts = 256, kF16Counts = 2048;

std::string lengths_text(const Inspection& in) {
  std::set<std::int64_t> lengths;
  for (const Schedule& schedule : in.schedules) lengths.insert(schedule.calls.begin(), schedule.calls.end());
  std::vector<std::string> items;
  for (const std::int64_t length : lengths) items.push_back(cat(length));
  return list_text(items);
}

std::string windows_text(const Inspection& in) {
  std::set<std::int64_t> reached, beyond;
  for (const StateLayer& layer : in.shape.layers)
    if (layer.window) (*layer.window < in.golden.size() ? reached : beyond).insert(*layer.window);
  const auto text = [](const std::set<std::int64_t>& windows) {
    std::vector<std::string> items;
    for (const std::int64_t window : windows) items.push_back(cat(window));
    return list_text(items);
  };
  std::string out;
  if (!reached.empty()) out += cat("; windows of ", text(reached), " are passed");
  if (!beyond.empty())
    out += cat("; windows of ", text(beyond), " are NOT reached: a longer text does (length ",
               *beyond.rbegin() + 64, ")");
  return out;
}

}  // namespace

void note_coverage(Inspection& in) {
  const std::int64_t tokens = in.golden.size();
  const std::set<TokenId> ids(in.tokens.begin(), in.tokens.end());
  std::string what = cat("positions 0 to ", tokens - 1, ", calls of ", lengths_text(in), " tokens, ",
                         ids.size(), " different ids of ", in.shape.vocab, windows_text(in));
  if (in.golden.experts > 0)
    what += cat("; ", in.golden.experts_used, " of ", in.golden.experts, " experts were used");
  if (in.shape.keeps_capacity) what += "; a full state";
  if (tokens <= kBf16Counts)
    what +=
        cat("; positions from ", kBf16Counts, " and ", kF16Counts,
            " on, where counters in bf16 and f16 stand still, are NOT reached: a longer text does (length)");
  in.report.notes.push_back({"coverage", std::move(what)});
}

void check_read_twice(Inspection& in) {
  const char* name = "read twice";
  // The cut with the fewest calls.
  const Schedule& schedule =
      *std::min_element(in.schedules.begin(), in.schedules.end(),
                        [](const Schedule& a, const Schedule& b) { return a.calls.size() < b.calls.size(); });
  RunOptions options;
  options.want_rows = false;
  const Run one = run(in.model, in.tokens, schedule, options),
            two = run(in.model, in.tokens, schedule, options);
  if (one.known != two.known || one.logits.empty()) {
    in.add_check(name, Outcome::skipped, "the model did not read the text");
    return;
  }
  const auto vocab = static_cast<std::size_t>(in.shape.vocab);
  double worst = 0.0;
  std::optional<Pos> token;
  for (std::size_t i = 0; i < one.known.size(); ++i) {
    const double off = likeness(std::span(two.logits).subspan(i * vocab, vocab),
                                std::span(one.logits).subspan(i * vocab, vocab))
                           .relative();
    if (off > kDependence && !token) token = one.known[i];
    worst = std::max(worst, off);
  }
  if (!one.finite || !token) {
    in.add_check(name, Outcome::passed,
                 worst == 0.0 ? "the same bits" : cat("alike to ", worst, ", not the same bits"));
    return;
  }
  in.add_check(name, Outcome::failed, cat("the logits of token ", *token, " are others the second time"));
  in.report.findings.push_back(state_finding("not_deterministic", name, {std::nullopt, *token},
                                             cat("the same text was read twice, ", schedule.name,
                                                 ", each time into a new state, and the logits differ by ",
                                                 share_text(worst), " from token ", *token, " on"),
                                             "Look for a state that outlives its sequence, memory that "
                                             "nobody set, or an order of sums that changes."));
}

}  // namespace kvtide
