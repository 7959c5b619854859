#include "eval/compare.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::int64_t kChunk = 256;  // tokens that all sessions read before the next chunk
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

// ln of the softmax's denominator.
double log_sum(std::span<const float> logits) {
  const float highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float x : logits) sum += static_cast<double>(std::exp(x - highest));
  return static_cast<double>(highest) + std::log(sum);
}

double divergence(std::span<const float> p, double p_sum, std::span<const float> q, double q_sum) {
  double sum = 0.0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double log_p = static_cast<double>(p[i]) - p_sum;
    if (log_p < -30.0) continue;
    sum += static_cast<double>(std::exp(static_cast<float>(log_p))) *
           (log_p - (static_cast<double>(q[i]) - q_sum));
  }
  return sum;
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
      in_text_(static_cast<std::size_t>(positions), 0) {}

Score Comparison::score(std::int64_t session, Pos first, Pos last) const {
  const auto s = static_cast<std::size_t>(session);
  Score score;
  double nll = 0.0, kl = 0.0;
  std::int64_t agreed = 0;
  std::vector<float> kls;
  for (Pos p = first; p < last; ++p) {
    const auto i = static_cast<std::size_t>(p);
    if (!in_text_[i]) continue;
    nll += static_cast<double>(nll_[s][i]);
    ++score.tokens;
    if (std::isnan(kl_[s][i])) continue;
    kl += static_cast<double>(kl_[s][i]);
    kls.push_back(kl_[s][i]);
    agreed += same_[s][i];
  }
  if (score.tokens == 0) return score;
  score.ppl = std::exp(nll / static_cast<double>(score.tokens));
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

Comparison compare(std::span<Session* const> sessions, std::span<const TokenId> tokens,
                   const CompareOptions& options) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  Comparison result(static_cast<std::int64_t>(sessions.size()), count);
  for (Pos p = std::max<Pos>(1, options.score_from); p < count; ++p)
    result.in_text_[static_cast<std::size_t>(p)] = 1;
  std::vector<char> needed(result.in_text_);
  for (const PosRange& probe : options.probes)
    for (Pos p = probe.first; p < probe.last; ++p) {
      result.in_text_[static_cast<std::size_t>(p)] = 0;
      needed[static_cast<std::size_t>(p)] = 1;
    }

  const auto vocabulary = static_cast<std::size_t>(sessions.front()->model().vocabulary());
  std::vector<float> reference(static_cast<std::size_t>(kChunk) * vocabulary);
  std::vector<double> reference_sums(static_cast<std::size_t>(kChunk));
  for (Pos done = 0; done < count; done += kChunk) {
    const std::int64_t chunk = std::min(kChunk, count - done);
    // Logits are computed only for chunks in which somebody asks for them.
    bool any = false;
    for (Pos p = done + 1; p <= std::min(count - 1, done + chunk); ++p)
      any = any || needed[static_cast<std::size_t>(p)];
    for (std::size_t s = 0; s < sessions.size(); ++s) {
      ReadOptions read;
      read.need_logits = any;
      if (any) {
        read.logits_from = done;
        read.on_logits = [&](Pos position, std::span<const float> logits) {
          const auto target = static_cast<std::size_t>(position + 1);
          if (static_cast<std::int64_t>(target) >= count || !needed[target]) return;
          const double sum = log_sum(logits);
          result.nll_[s][target] =
              static_cast<float>(sum - static_cast<double>(logits[static_cast<std::size_t>(tokens[target])]));
          if (static_cast<std::int64_t>(target) % options.kl_every != 0) return;
          float* own = reference.data() + static_cast<std::size_t>(position - done) * vocabulary;
          if (s == 0) {
            std::copy(logits.begin(), logits.end(), own);
            reference_sums[static_cast<std::size_t>(position - done)] = sum;
          }
          const std::span<const float> ours(own, vocabulary);
          result.kl_[s][target] = static_cast<float>(
              divergence(ours, reference_sums[static_cast<std::size_t>(position - done)], logits, sum));
          result.same_[s][target] = std::max_element(ours.begin(), ours.end()) - ours.begin() ==
                                    std::max_element(logits.begin(), logits.end()) - logits.begin();
        };
      }
      sessions[s]->read(tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(chunk)),
                        read);
    }
    if (options.progress && !options.progress(done + chunk, count))
      throw Error(ErrorCode::cancelled, "the comparison was stopped");
  }
  return result;
}

}  // namespace kvtide
