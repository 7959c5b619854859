#include "shards/sharded_generate.h"

#include <algorithm>

#include "base/stopwatch.h"
#include "base/text.h"
#include "engine/suffix_draft.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

// Ties go to the lower id, as everywhere.
TokenId likeliest(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!(logits[id] - logits[id] == 0.0f))
      throw Error(ErrorCode::numeric,
                  cat("the logit of token ", id, " is ", logits[id], "; it must be a number"));
    if (logits[id] > logits[best]) best = id;
  }
  return static_cast<TokenId>(best);
}

class Writer {
 public:
  Writer(ShardedModel& model, const ShardedGenerateOptions& options) : model_(model), options_(options) {}

  ShardedGenerated run(std::span<const TokenId> prompt) {
    read_prompt(prompt);
    history_.assign(prompt.begin(), prompt.end());
    const ShardSeconds before = model_.seconds();
    const Stopwatch watch;
    while (!finished_) {
      if (model_.position() >= model_.folder().slots())
        finish(StopReason::context_full);
      else
        step();
    }
    out_.decode_seconds = watch.seconds();
    out_.decode = model_.seconds() - before;
    return std::move(out_);
  }

 private:
  void read_prompt(std::span<const TokenId> prompt) {
    if (prompt.empty())
      throw Error(ErrorCode::invalid_argument, "an empty prompt gives nothing to go on from");
    const auto count = static_cast<std::int64_t>(prompt.size());
    const std::int64_t left = model_.folder().slots() - model_.position();
    if (count > left)
      throw Error(ErrorCode::context_full,
                  cat("the prompt has ", count, " tokens, but ", left, " of ", model_.folder().slots(),
                      " slots are left; export with more --slots"));
    const Stopwatch watch;
    out_.prompt_tokens = count;
    const auto most = static_cast<std::size_t>(model_.folder().t_max());
    std::span<const float> logits;
    for (std::size_t at = 0; at < prompt.size(); at += most) {
      const auto chunk = prompt.subspan(at, std::min(most, prompt.size() - at));
      logits = model_.read(chunk, at + chunk.size() == prompt.size() ? 1 : 0);
    }
    out_.prompt_seconds = watch.seconds();
    next_ = likeliest(logits);
    take(next_);
  }

  // Reads the newest token and guesses behind it; what the model says after each read token is taken as long
  // as the guesses were right.
  void step() {
    const std::int64_t written = static_cast<std::int64_t>(out_.tokens.size());
    std::int64_t room = std::min(model_.folder().t_max(), model_.folder().slots() - model_.position()) - 1;
    room = std::min(room, options_.max_tokens - written - 1);
    history_.push_back(next_);
    std::vector<TokenId> chunk = {next_};
    if (options_.draft && room > 0) {
      const std::vector<TokenId> guess = draft_by_suffix(history_, room);
      chunk.insert(chunk.end(), guess.begin(), guess.end());
    }
    const auto drafted = static_cast<std::int64_t>(chunk.size()) - 1;
    const Pos first = model_.position();
    const std::span<const float> logits = model_.read(chunk, drafted + 1);
    ++out_.calls;
    out_.drafted += drafted;
    const auto vocabulary = static_cast<std::size_t>(model_.folder().vocabulary());
    for (std::int64_t t = 0; t <= drafted && !finished_; ++t) {
      next_ = likeliest(logits.subspan(static_cast<std::size_t>(t) * vocabulary, vocabulary));
      const bool right = t < drafted && chunk[static_cast<std::size_t>(t) + 1] == next_;
      take(next_);
      if (!right || finished_) {
        model_.truncate(first + t + 1);
        break;
      }
      ++out_.accepted;
      history_.push_back(next_);
    }
  }

  void take(TokenId token) {
    if (options_.stop_at_end && model_.tokenizer().ends_text(token)) return finish(StopReason::end_of_text);
    if (static_cast<std::int64_t>(out_.tokens.size()) >= options_.max_tokens)
      return finish(StopReason::max_tokens);
    out_.tokens.push_back(token);
    if (options_.on_token && !options_.on_token(token)) return finish(StopReason::cancelled);
    if (static_cast<std::int64_t>(out_.tokens.size()) == options_.max_tokens) finish(StopReason::max_tokens);
  }

  void finish(StopReason reason) {
    finished_ = true;
    out_.reason = reason;
  }

  ShardedModel& model_;
  const ShardedGenerateOptions& options_;
  ShardedGenerated out_;
  std::vector<TokenId> history_;
  TokenId next_ = 0;
  bool finished_ = false;
};

}  // namespace

ShardedGenerated generate_greedy(ShardedModel& model, std::span<const TokenId> prompt,
                                 const ShardedGenerateOptions& options) {
  return Writer(model, options).run(prompt);
}

}  // namespace kvtide
