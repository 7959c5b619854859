#include "validate/logits_check.h"

#include <algorithm>
#include <cmath>

namespace kvtide {
namespace {

std::vector<double> log_softmax(std::span<const float> logits) {
  double top = -INFINITY, sum = 0.0;
  for (const float x : logits) top = std::max(top, static_cast<double>(x));
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - top);
  std::vector<double> out;
  for (const float x : logits) out.push_back(static_cast<double>(x) - top - std::log(sum));
  return out;
}

std::size_t likeliest(std::span<const float> logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// How much the reference prefers its own choice, in logits, before another choice counts as a difference.
double margin(double gate) { return gate > 0.999 ? 0.05 : 1.0; }

// Of logits whose errors are as large as the gate allows, and of a token behind an expert that the reference
// could not follow.
double largest_kl(std::span<const float> wanted, double gate) {
  double square = 0.0;
  for (const float x : wanted) square += static_cast<double>(x) * static_cast<double>(x);
  return 4.0 * (1.0 - gate) * square / static_cast<double>(wanted.size()) + 1e-4;
}
constexpr double kOpenKl = 3.0;      // nats
constexpr double kOpenMeanKl = 0.5;  // over all such tokens

LogitsVerdict judge_token(const Inspection& in, const Course& course, Pos token, std::span<const float> found,
                          std::span<const float> wanted) {
  LogitsVerdict out;
  const bool judges = course.judges(in.layers(), token);
  if (judges) out.likeness = likeness(found, wanted);
  const auto p = log_softmax(wanted), q = log_softmax(found);
  for (std::size_t k = 0; k < p.size(); ++k) out.kl += std::exp(p[k]) * (p[k] - q[k]);
  if (!std::isfinite(out.kl)) out.kl = INFINITY;
  const std::size_t ours = likeliest(found), theirs = likeliest(wanted);
  out.same_top = ours == theirs;
  const bool apart = in.set_apart[static_cast<std::size_t>(token)] != 0;
  const double preferred = static_cast<double>(wanted[theirs] - wanted[ours]);
  // Routers make the errors of many layers larger: twice those of one layer are allowed then.
  const double own = in.gate_of(token);
  const double gate = in.isolates() && !in.golden.ties.empty() ? 1.0 - 4.0 * (1.0 - own) : own;
  const bool coarse = coarse_routers(in);
  out.open = !judges || coarse;
  out.fine = !out.open ? alike(out.likeness, gate) && out.kl <= largest_kl(wanted, gate) &&
                             (apart || preferred <= margin(in.options.gate))
                       : coarse || out.kl <= kOpenKl;
  return out;
}

}  // namespace

bool coarse_routers(const Inspection& in) {
  return in.isolates() && is_coarse(in.options.gate) && !in.golden.ties.empty();
}

bool judge_logits(const Inspection& in, std::size_t schedule, const Run& run, ScheduleResult& result,
                  std::map<Pos, LogitsVerdict>& first) {
  const auto vocab = static_cast<std::size_t>(in.golden.vocab);
  const Course& course = in.courses[schedule];
  bool fine = true;
  double open_kl = 0.0;
  std::int64_t open = 0;
  for (std::size_t i = 0; i < run.known.size(); ++i) {
    const Pos token = run.known[i];
    const auto found = std::span(run.logits).subspan(i * vocab, vocab);
    const auto known = first.find(token);
    const bool again =
        schedule > 0 && known != first.end() && course.golden == in.courses[0].golden && !course.open &&
        !in.courses[0].open &&
        std::equal(found.begin(), found.end(),
                   in.chained[0].logits.begin() + static_cast<std::ptrdiff_t>(known->second.at * vocab));
    LogitsVerdict verdict =
        again ? known->second
              : judge_token(
                    in, course, token, found,
                    std::span(course.golden->logits).subspan(static_cast<std::size_t>(token) * vocab, vocab));
    result.logits_cosine = std::min(result.logits_cosine, verdict.likeness.cosine);
    result.logits_error = std::max(result.logits_error, verdict.likeness.max_abs);
    result.kl_mean += verdict.kl;
    result.kl_worst = std::max(result.kl_worst, verdict.kl);
    result.top_same += verdict.same_top;
    fine = fine && verdict.fine;
    if (verdict.open) ++open, open_kl += verdict.kl;
    verdict.at = i;
    if (schedule == 0) first.emplace(token, verdict);
  }
  result.top_asked = static_cast<std::int64_t>(run.known.size());
  if (result.top_asked > 0) result.kl_mean /= static_cast<double>(result.top_asked);
  return fine && open_kl <= kOpenMeanKl * static_cast<double>(open);
}

}  // namespace kvtide
