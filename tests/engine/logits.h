// logits.h: reading a text through a session and keeping every row of logits.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "kvtide/session.h"
#include "tests/kernels/samples.h"

namespace kvtide::testing {

// [position][vocabulary] of the tokens, read in one call behind what the session holds.
inline std::vector<float> all_logits(Session& session, std::span<const TokenId> tokens) {
  std::vector<float> out;
  ReadOptions read;
  read.logits_from = session.position();
  read.on_logits = [&](Pos, std::span<const float> row) { out.insert(out.end(), row.begin(), row.end()); };
  session.read(tokens, read);
  return out;
}

inline std::vector<float> all_logits(const Model& model, const SessionOptions& options,
                                     std::span<const TokenId> tokens) {
  Session session(model, options);
  return all_logits(session, tokens);
}

// A made-up text of `n` tokens below `vocabulary`.
inline std::vector<TokenId> random_tokens(std::size_t n, std::int64_t vocabulary, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<TokenId> out(n);
  for (TokenId& token : out) token = static_cast<TokenId>(rng.below(vocabulary));
  return out;
}

}  // namespace kvtide::testing
