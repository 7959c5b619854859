#include "eval/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/text.h"
#include "kernels/kernels.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

// Tokens that all sessions read before the next chunk: as many as fit this many logits.
constexpr std::int64_t kMostChunk = 256, kMostLogits = std::int64_t{1} << 25;
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

// A row of logits as probabilities: what is needed of it more than once. Padded as the kernel wants it.
struct Distribution {
  const DenseRow& kernels;
  std::vector<float> p = {};
  float log_sum = 0.0f;  // ln of the softmax's denominator
  std::int64_t likeliest = 0;

  void set(std::span<const float> logits) {
    p.resize((logits.size() + 15) / 16 * 16);
    std::copy(logits.begin(), logits.end(), p.begin());
    std::fill(p.begin() + static_cast<std::ptrdiff_t>(logits.size()), p.end(),
              -std::numeric_limits<float>::infinity());
    log_sum = kernels.soften(p.data(), static_cast<std::int64_t>(p.size()));
    likeliest = std::max_element(logits.begin(), logits.end()) - logits.begin();
  }
};

// KL(p || q) = sum p (P - Q) - ln-sum of P + ln-sum of Q, P and Q being logits.
double divergence(const Distribution& p, std::span<const float> p_logits, const Distribution& q,
                  std::span<const float> q_logits) {
  double sum = 0.0;
  for (std::size_t i = 0; i < p_logits.size(); ++i) {
    if (p.p[i] == 0.0f) continue;  // also where both logits are minus infinity
    sum +=
        static_cast<double>(p.p[i]) * (static_cast<double>(p_logits[i]) - static_cast<double>(q_logits[i]));
  }
  return sum - static_cast<double>(p.log_sum) + static_cast<double>(q.log_sum);
}

}  // namespace

Interval block_bootstrap(std::span<const float> values, std::int64_t block, int rounds) {
  std::vector<double> sums;
  std::vector<std::int64_t> counts;
  std::int64_t in_block = 0;
  for (const float v : values) {
    if (std::isnan(v)) continue;
    if (in_block % block == 0) {
      sums.push_back(0.0);
      counts.push_back(0);
    }
    sums.back() += static_cast<double>(v);
    ++counts.back();
    ++in_block;
  }
  if (sums.empty()) return {};
  const auto mean_of = [&](auto pick) {
    double sum = 0.0;
    std::int64_t count = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::size_t at = pick(i);
      sum += sums[at];
      count += counts[at];
    }
    return sum / static_cast<double>(count);
  };
  std::mt19937_64 random(1);
  std::vector<double> means;
  for (int round = 0; round < rounds; ++round)
    means.push_back(mean_of([&](std::size_t) { return static_cast<std::size_t>(random() % sums.size()); }));
  std::sort(means.begin(), means.end());
  const auto at = [&](double share) {
    return means[static_cast<std::size_t>(share * static_cast<double>(rounds - 1))];
  };
  return {mean_of([](std::size_t i) { return i; }), at(0.025), at(0.975)};
}

Comparison::Comparison(std::int64_t sessions, std::int64_t positions)
    : nll_(static_cast<std::size_t>(sessions),
           std::vector<float>(static_cast<std::size_t>(positions), kNone)),
      kl_(nll_),
      same_(static_cast<std::size_t>(sessions), std::vector<char>(static_cast<std::size_t>(positions), 0)),
      foreseen_(same_),
      in_text_(static_cast<std::size_t>(positions), 0) {}

Score Comparison::score(std::int64_t session, Pos first, Pos last) const {
  const auto s = static_cast<std::size_t>(session);
  Score score;
  double nll = 0.0, squares = 0.0, kl = 0.0;
  std::int64_t agreed = 0;
  std::vector<float> kls;
  for (Pos p = first; p < last; ++p) {
    const auto i = static_cast<std::size_t>(p);
    if (!in_text_[i]) continue;
    const double own = static_cast<double>(nll_[s][i]);
    nll += own;
    squares += own * own;
    ++score.tokens;
    if (std::isnan(kl_[s][i])) continue;
    kl += static_cast<double>(kl_[s][i]);
    kls.push_back(kl_[s][i]);
    agreed += same_[s][i];
  }
  if (score.tokens == 0) return score;
  const double n = static_cast<double>(score.tokens), mean = nll / n;
  score.ppl = std::exp(mean);
  if (score.tokens > 1)
    score.ppl_se = score.ppl * std::sqrt(std::max(0.0, squares / n - mean * mean) / (n - 1.0));
  score.change = difference(session, 0, first, last);
  if (kls.empty()) return score;
  score.kl = kl / static_cast<double>(kls.size());
  score.agreement = static_cast<double>(agreed) / static_cast<double>(kls.size());
  const auto p99 = kls.begin() + static_cast<std::ptrdiff_t>(0.99 * static_cast<double>(kls.size() - 1));
  std::nth_element(kls.begin(), p99, kls.end());
  score.kl_p99 = static_cast<double>(*p99);
  return score;
}

Interval Comparison::difference(std::int64_t a, std::int64_t b, Pos first, Pos last) const {
  std::vector<float> differences;
  for (Pos p = first; p < last; ++p) {
    const auto i = static_cast<std::size_t>(p);
    if (in_text_[i])
      differences.push_back(nll_[static_cast<std::size_t>(a)][i] - nll_[static_cast<std::size_t>(b)][i]);
  }
  return block_bootstrap(differences);
}

double Comparison::probe(std::int64_t session, const PosRange& range) const {
  double sum = 0.0;
  for (Pos p = range.first; p < range.last; ++p)
    sum += static_cast<double>(nll_[static_cast<std::size_t>(session)][static_cast<std::size_t>(p)]);
  return sum / static_cast<double>(range.last - range.first);
}

bool Comparison::foreseen(std::int64_t session, const PosRange& range) const {
  const auto& hits = foreseen_[static_cast<std::size_t>(session)];
  return std::all_of(hits.begin() + range.first, hits.begin() + range.last,
                     [](char hit) { return hit != 0; });
}

Comparison compare(std::span<Session* const> sessions, std::span<const TokenId> tokens,
                   const CompareOptions& options) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (sessions.empty()) throw Error(ErrorCode::invalid_argument, "a comparison needs a session");
  Comparison result(static_cast<std::int64_t>(sessions.size()), count);
  for (Pos p = std::max<Pos>(1, options.score_from); p < count; ++p)
    result.in_text_[static_cast<std::size_t>(p)] = 1;
  std::vector<char> needed(result.in_text_);
  for (const PosRange& probe : options.probes) {
    if (probe.first < 1 || probe.last > count || probe.first > probe.last)
      throw Error(ErrorCode::invalid_argument, cat("a probe of positions ", probe.first, " to ", probe.last,
                                                   " does not lie behind the first of ", count, " tokens"));
    for (Pos p = probe.first; p < probe.last; ++p) {
      result.in_text_[static_cast<std::size_t>(p)] = 0;
      needed[static_cast<std::size_t>(p)] = 1;
    }
  }

  const std::int64_t vocabulary = sessions.front()->model().vocabulary();
  const std::int64_t most = std::clamp<std::int64_t>(kMostLogits / vocabulary, 1, kMostChunk);
  const auto width = static_cast<std::size_t>(vocabulary);
  std::vector<float> reference_logits(static_cast<std::size_t>(most) * width);  // of this chunk
  const DenseRow& kernels = best_kernels().dense;
  Distribution reference{kernels}, own{kernels};
  for (Pos done = 0; done < count; done += most) {
    const std::int64_t chunk = std::min(most, count - done);
    // Logits are computed only for chunks in which somebody asks for them.
    bool any = false;
    for (Pos p = done + 1; p <= std::min(count - 1, done + chunk); ++p)
      any = any || needed[static_cast<std::size_t>(p)];
    for (std::size_t s = 0; s < sessions.size(); ++s) {
      ReadOptions read;
      read.need_logits = false;
      if (any) {
        read.logits_from = done;
        read.on_logits = [&](Pos position, std::span<const float> logits) {
          const auto target = static_cast<std::size_t>(position + 1);
          if (static_cast<std::int64_t>(target) >= count || !needed[target]) return;
          own.set(logits);
          result.nll_[s][target] = own.log_sum - logits[static_cast<std::size_t>(tokens[target])];
          result.foreseen_[s][target] = own.likeliest == tokens[target];
          if (static_cast<std::int64_t>(target) % options.kl_every != 0) return;
          const std::span theirs(reference_logits.data() + static_cast<std::size_t>(position - done) * width,
                                 width);
          if (s == 0) std::copy(logits.begin(), logits.end(), theirs.begin());
          reference.set(theirs);
          result.kl_[s][target] = static_cast<float>(divergence(reference, theirs, own, logits));
          result.same_[s][target] = reference.likeliest == own.likeliest;
        };
      }
      sessions[s]->read(tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(chunk)),
                        read);
    }
    if (options.progress && !options.progress(done + chunk, count))
      throw Error(ErrorCode::cancelled,
                  cat("the comparison was stopped after ", done + chunk, " of ", count, " tokens"));
  }
  return result;
}

}  // namespace kvtide
