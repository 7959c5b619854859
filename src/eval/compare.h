// compare.h: several memories reading the same text side by side: what each loses against the first.
//
// Every session reads the text once, through its live memory; each token is scored before it is read. The
// first session is the reference: perplexity, KL divergence and agreement of the others are measured against
// it token by token, with paired bootstrap intervals over blocks of 128 tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kvtide/session.h"

namespace kvtide {

struct CompareOptions {
  std::vector<PosRange> probes;  // targets that are measured apart from the text, and not part of it
  Pos score_from = 0;            // positions of targets before this are read, not scored
  std::int64_t kl_every = 1;     // KL and agreement of every so many-th token
  std::function<bool(std::int64_t done, std::int64_t total)> progress;  // false stops: Error(cancelled)
};

struct Interval {
  double mean = 0.0, low = 0.0, high = 0.0;  // 95%
};

// Of one session, over targets [first, last).
struct Score {
  double ppl = 0.0;
  double ppl_se = 0.0;  // standard error
  Interval change;      // of ln PPL against the reference; a change of 0.01 is +1%
  double kl = 0.0;      // mean of KL(reference || this), nats
  double kl_p99 = 0.0;
  double agreement = 0.0;  // share of tokens with the same most likely token
  std::int64_t tokens = 0;
};

class Comparison {
 public:
  Comparison(std::int64_t sessions, std::int64_t positions);

  Score score(std::int64_t session, Pos first, Pos last) const;
  // Paired difference of ln PPL, a - b.
  Interval difference(std::int64_t a, std::int64_t b, Pos first, Pos last) const;
  // Mean -ln p over a probe, and whether every target of it was the most likely token: what greedy decoding
  // would have written.
  double probe(std::int64_t session, const PosRange& range) const;
  bool foreseen(std::int64_t session, const PosRange& range) const;

 private:
  friend Comparison compare(std::span<Session* const> sessions, std::span<const TokenId> tokens,
                            const CompareOptions& options);
  std::vector<std::vector<float>> nll_, kl_;        // [session][position of the target]; NaN: not scored
  std::vector<std::vector<char>> same_, foreseen_;  // likeliest token: that of the reference; the target
  std::vector<char> in_text_;                       // targets that are part of the text
};

// Throws Error(invalid_argument) without sessions or for a probe outside the text, and what Session::read
// throws. Needs room for one chunk of the reference's logits: at most 128 MiB.
Comparison compare(std::span<Session* const> sessions, std::span<const TokenId> tokens,
                   const CompareOptions& options = {});

// Mean of `values` with a bootstrap interval over consecutive blocks; `values` that are NaN are left out.
Interval block_bootstrap(std::span<const float> values, std::int64_t block = 128, int rounds = 1000);

}  // namespace kvtide
