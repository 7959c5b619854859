#include "eval/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

// Mean and variance of what was added, with sums in double.
struct Tally {
  double sum = 0.0, squares = 0.0;
  std::int64_t count = 0;

  void add(double nll) {
    sum += nll;
    squares += nll * nll;
    ++count;
  }
  double ppl() const { return std::exp(sum / static_cast<double>(count)); }
  double standard_error() const {
    if (count < 2) return 0.0;
    const double n = static_cast<double>(count), mean = sum / n;
    const double variance = std::max(0.0, squares / n - mean * mean);
    return std::sqrt(variance / (n - 1.0)) * ppl();
  }
};

}  // namespace

double negative_log_likelihood(std::span<const float> logits, TokenId target) {
  const float highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += static_cast<double>(std::exp(logit - highest));
  return std::log(sum) - static_cast<double>(logits[static_cast<std::size_t>(target)] - highest);
}

Perplexity perplexity_by_chunks(Session& session, std::span<const TokenId> tokens, std::int64_t n_ctx,
                                std::int64_t chunks,
                                const std::function<bool(const PerplexityProgress&)>& progress) {
  const auto refuse = [](const std::string& why) { throw Error(ErrorCode::invalid_argument, why); };
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (n_ctx < 4) refuse(cat("perplexity needs chunks of at least 4 tokens, not ", n_ctx));
  if (n_ctx > session.context())
    refuse(cat("chunks of ", n_ctx, " tokens do not fit a context of ", session.context()));
  if (count < 2 * n_ctx)
    refuse(cat("the text has ", count, " tokens; perplexity over chunks of ", n_ctx, " needs at least ",
               2 * n_ctx));
  const std::int64_t total = chunks > 0 ? std::min(chunks, count / n_ctx) : count / n_ctx;

  const Tokenizer& tokenizer = session.model().tokenizer();
  Tally tally;
  Perplexity result;
  for (std::int64_t chunk = 0; chunk < total; ++chunk) {
    const auto part =
        tokens.subspan(static_cast<std::size_t>(chunk * n_ctx), static_cast<std::size_t>(n_ctx));
    std::vector<TokenId> text(part.begin(), part.end());
    if (tokenizer.adds_bos() && tokenizer.bos()) text[0] = *tokenizer.bos();
    session.clear();
    ReadOptions read;
    read.logits_from = n_ctx / 2;
    read.need_logits = false;
    read.on_logits = [&](Pos pos, std::span<const float> row) {
      if (pos + 1 < n_ctx) tally.add(negative_log_likelihood(row, text[static_cast<std::size_t>(pos + 1)]));
    };
    session.read(text, read);
    result.running.push_back(tally.ppl());
    if (progress && !progress({(chunk + 1) * n_ctx, total * n_ctx, tally.ppl()}))
      throw Error(ErrorCode::cancelled, cat("stopped after ", chunk + 1, " of ", total, " chunks"));
  }
  result.ppl = tally.ppl();
  result.standard_error = tally.standard_error();
  result.tokens_scored = tally.count;
  return result;
}

StreamedPerplexity perplexity_by_depth(Session& session, std::span<const TokenId> tokens, std::int64_t bucket,
                                       const std::function<bool(const PerplexityProgress&)>& progress) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count < 2) throw Error(ErrorCode::invalid_argument, "a perplexity needs a text of at least 2 tokens");
  if (bucket < 1)
    throw Error(ErrorCode::invalid_argument, cat("buckets must hold at least 1 token, not ", bucket));
  session.clear();
  StreamedPerplexity result;
  std::vector<Tally> tallies(static_cast<std::size_t>((count + bucket - 1) / bucket));
  Tally overall;
  ReadOptions read;
  read.logits_from = 0;
  read.need_logits = false;
  read.on_logits = [&](Pos pos, std::span<const float> row) {
    if (pos + 1 >= count) return;
    result.likeliest.push_back(static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin()));
    const double nll = negative_log_likelihood(row, tokens[static_cast<std::size_t>(pos + 1)]);
    overall.add(nll);
    tallies[static_cast<std::size_t>((pos + 1) / bucket)].add(nll);
  };
  read.progress = [&](std::int64_t done) { return !progress || progress({done, count, overall.ppl()}); };
  session.read(tokens, read);

  for (std::size_t i = 0; i < tallies.size(); ++i) {
    if (tallies[i].count == 0) continue;
    const auto first = static_cast<Pos>(i) * bucket;
    result.buckets.push_back({first, std::min<Pos>(count, first + bucket), tallies[i].ppl(),
                              tallies[i].standard_error(), tallies[i].count});
    result.overall.running.push_back(tallies[i].ppl());
  }
  result.overall.ppl = overall.ppl();
  result.overall.standard_error = overall.standard_error();
  result.overall.tokens_scored = overall.count;
  return result;
}

}  // namespace kvtide
