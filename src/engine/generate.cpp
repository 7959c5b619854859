#include "kvtide/generate.h"

#include <algorithm>
#include <optional>

#include "base/out_of_memory.h"
#include "engine/stop_filter.h"
#include "engine/suffix_draft.h"
#include "kvtide/error.h"
#include "text/utf8.h"

namespace kvtide {
namespace {

// One answer. Its tokens are chosen one after the other from the logits behind the one before, whether these were read
// alone or as guesses.
class Writer {
 public:
  Writer(Session& session, const GenerateOptions& options)
      : session_(session),
        options_(options),
        tokenizer_(session.model().tokenizer()),
        sampler_(options.sampler),
        filter_(options.stop),
        recent_(options.history) {
    if (options.form.constraint()) place_.emplace(options.form);
  }

  Generated run() {
    std::optional<TokenId> next = choose(session_.logits());
    while (next) {
      if (session_.room() < 1 && (reason_ || !options_.make_room || !options_.make_room())) {
        if (!reason_) reason_ = StopReason::context_full;
        break;
      }
      if (options_.before_pass) options_.before_pass();
      next = read(*next);
    }
    if (!filter_.found()) emit(filter_.add(characters_.finish()) + filter_.rest());
    out_.reason = *reason_;
    return std::move(out_);
  }

 private:
  // The next token of the answer, which is to be read; nullopt when the answer ends without one.
  std::optional<TokenId> choose(std::span<const float> logits) {
    if (reason_) return std::nullopt;
    if (options_.max_tokens >= 0 && static_cast<std::int64_t>(out_.tokens.size()) >= options_.max_tokens) {
      reason_ = StopReason::max_tokens;
      return std::nullopt;
    }
    if (options_.on_logits) options_.on_logits(logits);
    if (place_ && !place_->may_go_on()) {
      reason_ = StopReason::end_of_text;
      return std::nullopt;
    }
    const TokenId token = sampler_.pick(place_ ? held_to_form(logits) : logits, recent_);
    const auto& ends = options_.stop_tokens;
    if (tokenizer_.ends_text(token) || std::find(ends.begin(), ends.end(), token) != ends.end()) {
      reason_ = StopReason::end_of_text;
      return std::nullopt;
    }
    if (place_) place_->advance(tokenizer_.piece(token));
    out_.tokens.push_back(token);
    recent_.push_back(token);
    if (!emit(filter_.add(characters_.push(tokenizer_.piece(token))))) reason_ = StopReason::cancelled;
    if (filter_.found()) reason_ = StopReason::stop_string;
    return token;
  }

  std::span<const float> held_to_form(std::span<const float> logits) {
    held_.assign(logits.begin(), logits.end());
    place_->hold(held_, options_.stop_tokens);
    return held_;
  }

  // Reads the token and, with it, guesses that turn out to be right; gives what is chosen behind them.
  std::optional<TokenId> read(TokenId token) {
    const std::vector<TokenId> tokens = with_guesses(token);
    if (tokens.size() == 1) {
      session_.read(tokens);
      return choose(session_.logits());
    }
    std::size_t asked = 0;
    std::optional<TokenId> chosen;
    const std::int64_t kept = session_.read_while(tokens, [&](std::span<const float> logits) {
      chosen = choose(logits);
      return chosen == tokens[++asked];
    });
    const auto drafted = static_cast<std::int64_t>(tokens.size()) - 1;
    out_.drafted += drafted;
    out_.accepted += kept - 1;
    length_.learn(drafted, kept - 1);
    // Where the last guess that was looked at was right, nothing is chosen behind it yet.
    return asked == static_cast<std::size_t>(kept) ? chosen : choose(session_.logits());
  }

  std::vector<TokenId> with_guesses(TokenId token) {
    std::vector<TokenId> tokens = {token};
    if (options_.draft == Draft::none || reason_) return tokens;
    std::int64_t most = length_.next();
    if (options_.max_tokens >= 0)
      most = std::min(most, options_.max_tokens - static_cast<std::int64_t>(out_.tokens.size()));
    if (most < 1) return tokens;
    const std::vector<TokenId>& text = session_.tokens();
    if (text.size() < history_.size()) history_.clear();  // the memory was made anew
    history_.insert(history_.end(), text.begin() + static_cast<std::ptrdiff_t>(history_.size()), text.end());
    history_.push_back(token);
    const std::vector<TokenId> guess = draft_by_suffix(history_, most, kLeastSuffix);
    history_.pop_back();
    tokens.insert(tokens.end(), guess.begin(), guess.end());
    return tokens;
  }

  bool emit(const std::string& text) {
    out_.text += text;
    return text.empty() || !options_.on_text || options_.on_text(text);
  }

  static constexpr std::int64_t kLeastSuffix = 3;  // shorter ends stand everywhere and say little

  Session& session_;
  const GenerateOptions& options_;
  const Tokenizer& tokenizer_;
  Sampler sampler_;
  StopFilter filter_;
  Utf8Stream characters_;
  std::vector<TokenId> recent_, history_;  // for the penalty; what guesses are taken from
  std::optional<FormPlace> place_;         // nullopt: the answer may be anything
  std::vector<float> held_;                // logits, with what the form forbids taken out
  DraftLength length_;
  std::optional<StopReason> reason_;
  Generated out_;
};

}  // namespace

const char* stop_reason_name(StopReason reason) noexcept {
  switch (reason) {
    case StopReason::end_of_text:
      return "end_of_text";
    case StopReason::max_tokens:
      return "max_tokens";
    case StopReason::stop_string:
      return "stop_string";
    case StopReason::context_full:
      return "context_full";
    case StopReason::cancelled:
      return "cancelled";
  }
  return "unknown";
}

Generated generate(Session& session, const GenerateOptions& options) try {
  return Writer(session, options).run();
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
