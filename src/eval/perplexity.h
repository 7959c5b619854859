// perplexity.h: how well a model predicts a text, by two rules.
//
// Chunked: llama-perplexity's rule, so that numbers can be compared. The text is cut into chunks of n_ctx
// tokens, the memory is cleared before each, the first token of each is replaced by BOS where the vocabulary
// adds one, and only the targets in the second half of a chunk are scored: n_ctx - n_ctx / 2 - 1 of them.
// Streaming: one pass over the whole text through the live memory, every token but the first scored, by
// depth. PPL = exp(mean of -ln p); the standard error follows from the variance of -ln p.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kvtide/session.h"

namespace kvtide {

struct Perplexity {
  double ppl = 0.0;
  double standard_error = 0.0;
  std::int64_t tokens_scored = 0;
  std::vector<double> running;  // ppl after each chunk
};

struct PerplexityProgress {
  std::int64_t done, total;  // tokens read
  double ppl;                // so far
};

// Throws Error(invalid_argument) when the text is shorter than 2 n_ctx tokens or the session's context than
// n_ctx. chunks: at most so many; 0: all. progress: false stops with Error(cancelled).
Perplexity perplexity_by_chunks(Session& session, std::span<const TokenId> tokens, std::int64_t n_ctx,
                                std::int64_t chunks,
                                const std::function<bool(const PerplexityProgress&)>& progress = {});

struct DepthBucket {
  Pos first = 0, last = 0;  // positions of the scored tokens: [first, last)
  double ppl = 0.0;
  double standard_error = 0.0;
  std::int64_t tokens = 0;
};

struct StreamedPerplexity {
  Perplexity overall;  // running: one per bucket
  std::vector<DepthBucket> buckets;
  std::vector<TokenId>
      likeliest;  // what the model thinks follows each token but the last; ties: the lower id
};

// One pass; buckets of `bucket` positions.
StreamedPerplexity perplexity_by_depth(Session& session, std::span<const TokenId> tokens, std::int64_t bucket,
                                       const std::function<bool(const PerplexityProgress&)>& progress = {});

// -ln of the probability that `logits` give to `target`.
double negative_log_likelihood(std::span<const float> logits, TokenId target);

}  // namespace kvtide
