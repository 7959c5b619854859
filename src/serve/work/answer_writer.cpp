#include "serve/work/answer_writer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/most_likely.h"
#include "kvtide/error.h"

namespace kvtide::serve {
namespace answer_writer {

SamplerOptions of_choice(SamplerOptions options, int choice) {
  options.seed += static_cast<std::uint64_t>(choice);
  return options;
}

}  // namespace answer_writer

AnswerWriter::AnswerWriter(const Tokenizer& tokenizer, const AnswerSpec& spec, int choice,
                           std::int64_t max_tokens)
    : tokenizer_(tokenizer),
      spec_(spec),
      max_tokens_(max_tokens),
      sampler_(answer_writer::of_choice(spec.sampler, choice)),
      filter_(spec.stop) {
  piece_.choice = choice;
  if (spec.constraint) place_ = spec.constraint->start();
  if (spec.sampler.repeat_penalty != 1.0f) recent_ = spec.prompt;
}

std::optional<TokenId> AnswerWriter::choose(std::span<const float> logits) {
  if (reason_) return std::nullopt;
  if (written_ >= max_tokens_) {
    end(StopReason::max_tokens);
    return std::nullopt;
  }
  if (spec_.constraint && !spec_.constraint->may_go_on(place_)) {
    end(StopReason::end_of_text);
    return std::nullopt;
  }
  const TokenId token = sampler_.pick(adjusted(logits), recent_);
  const auto& ends = spec_.stop_tokens;
  if (!spec_.ignore_end &&
      (tokenizer_.ends_text(token) || std::find(ends.begin(), ends.end(), token) != ends.end())) {
    end(StopReason::end_of_text);
    return std::nullopt;
  }
  if (spec_.constraint) place_ = spec_.constraint->behind(place_, tokenizer_.piece(token));
  if (spec_.top_logprobs >= 0) note_logprob(logits, token);
  ++written_;
  if (spec_.frequency_penalty != 0.0 || spec_.presence_penalty != 0.0) ++counts_[token];
  if (spec_.sampler.repeat_penalty != 1.0f) recent_.push_back(token);
  piece_.tokens.push_back(token);
  const bool is_shown = std::find(spec_.shown.begin(), spec_.shown.end(), token) != spec_.shown.end();
  piece_.text += filter_.add(characters_.push(tokenizer_.piece(token, is_shown)));
  if (filter_.found()) {
    end(StopReason::stop_string);
    return std::nullopt;
  }
  if (written_ == max_tokens_) {  // nobody asks what comes behind it
    end(StopReason::max_tokens);
    return std::nullopt;
  }
  return token;
}

void AnswerWriter::end(StopReason reason) {
  if (reason_) return;
  reason_ = reason;
  if (filter_.found()) return;
  piece_.text += filter_.add(characters_.finish());
  piece_.text += filter_.rest();
}

AnswerPiece AnswerWriter::take() {
  AnswerPiece out = std::move(piece_);
  piece_ = AnswerPiece{.choice = out.choice, .text = {}, .tokens = {}, .logprobs = {}};
  return out;
}

std::span<const float> AnswerWriter::adjusted(std::span<const float> logits) {
  if (spec_.bias.empty() && counts_.empty() && !spec_.constraint) return logits;
  logits_.assign(logits.begin(), logits.end());
  for (const auto& [token, value] : spec_.bias)
    if (token >= 0 && static_cast<std::size_t>(token) < logits_.size())
      logits_[static_cast<std::size_t>(token)] += value;
  for (const auto& [token, count] : counts_)
    logits_[static_cast<std::size_t>(token)] -=
        static_cast<float>(spec_.presence_penalty + spec_.frequency_penalty * static_cast<double>(count));
  if (spec_.constraint && !spec_.constraint->allow(place_, logits_, spec_.stop_tokens))
    throw Error(ErrorCode::unsupported, "no token of this model's vocabulary goes on as the grammar asks");
  return logits_;
}

void AnswerWriter::note_logprob(std::span<const float> logits, TokenId token) {
  const double most = logits[highest(logits)];
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  const double all = most + std::log(sum);
  const auto of = [&](TokenId id) { return static_cast<double>(logits[static_cast<std::size_t>(id)]) - all; };
  TokenLogprob out{token, of(token), {}};
  for (const Candidate& one : most_likely(logits, static_cast<std::size_t>(spec_.top_logprobs)))
    out.top.emplace_back(one.id, of(one.id));
  piece_.logprobs.push_back(std::move(out));
}

}  // namespace kvtide::serve
