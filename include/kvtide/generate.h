// generate.h: continuing a text: choosing the next token and deciding when to stop.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvtide/session.h"

namespace kvtide {

namespace grammar {
class Constraint;
}

// What answers are held to: tokens that do not go on so are impossible, and an answer that nothing may follow ends.
// Ownership: copies share what was worked out. Thread rules: one thread at a time.
class AnswerForm {
 public:
  AnswerForm() = default;  // anything
  // `schema`: of JSON, as text. Throws Error: bad_format, invalid_argument, unsupported (a keyword, by name).
  static AnswerForm json_schema(const Tokenizer& tokenizer, std::string_view schema);
  // A grammar in the notation of llama.cpp (GBNF). Throws Error(invalid_argument) that names the line.
  static AnswerForm gbnf(const Tokenizer& tokenizer, std::string_view text);

  const std::shared_ptr<grammar::Constraint>& constraint() const { return constraint_; }

 private:
  std::shared_ptr<grammar::Constraint> constraint_;
};

// How far one answer has come in its form: for who chooses its tokens outside of generate(). The form must not be empty.
// Thread rules: one thread at a time, together with the form's copies.
class FormPlace {
 public:
  // Throws Error(invalid_argument) for the form that is anything.
  explicit FormPlace(AnswerForm form);
  bool may_go_on() const;  // false: the answer is complete, nothing may follow
  // Makes tokens that may not come next impossible. Tokens that end a text, and `ends` with them, stay where the answer
  // may end. Throws Error(unsupported) when no token may come.
  void hold(std::span<float> logits, std::span<const TokenId> ends = {}) const;
  // The answer goes on with the bytes of a token (Tokenizer::piece) that was allowed.
  void advance(std::string_view piece);

 private:
  AnswerForm form_;
  int at_ = 0;
};

struct SamplerOptions {
  float temperature = 0.0f;     // 0: the most likely token (greedy)
  int top_k = 40;               // keep the k most likely; 0: all
  float top_p = 0.95f;          // keep the smallest set with this probability; 1: all
  float min_p = 0.05f;          // drop tokens below this share of the most likely one's probability; 0: none
  float repeat_penalty = 1.0f;  // divides (positive) or multiplies (negative) logits of recent tokens; 1: off
  int repeat_last = 64;         // how many recent tokens the penalty sees
  std::uint64_t seed = 0;
};

class Sampler {
 public:
  // Throws Error(invalid_argument) for a value out of range (NaN included).
  explicit Sampler(const SamplerOptions& options);
  // The next token. Greedy ties go to the lower id. Throws Error(numeric) when the logits hold NaN or
  // +infinity, or nothing but -infinity; Error(invalid_argument) for a recent token that has no logit.
  TokenId pick(std::span<const float> logits, std::span<const TokenId> recent);

 private:
  SamplerOptions options_;
  std::mt19937_64 random_;
};

enum class StopReason { end_of_text, max_tokens, stop_string, context_full, cancelled };
const char* stop_reason_name(StopReason reason) noexcept;

// How tokens are guessed before the model says them (Session::read_while).
enum class Draft {
  none,
  ngram,  // what followed, earlier in the text, the longest end of the text that stood there before
};

struct GenerateOptions {
  std::int64_t max_tokens = -1;      // -1: until the end of the text
  std::vector<std::string> stop;     // texts that end the answer; they are not part of it
  std::vector<TokenId> stop_tokens;  // in addition to the tokenizer's end tokens
  SamplerOptions sampler;
  std::vector<TokenId> history;  // what was read before, for the repeat penalty
  AnswerForm form;
  // Changes only speed: every token is chosen from the same logits, by the same random numbers.
  Draft draft = Draft::none;
  // Receives text as soon as it is certain (whole UTF-8 characters, no beginning of a stop string); false
  // stops.
  std::function<bool(std::string_view)> on_text;
  std::function<void(std::span<const float>)> on_logits;  // before each choice; must not use the session
  std::function<void()>
      before_pass;  // before each reading of tokens: the session may be looked at, saved and changed
  // Called when the session has no room for the next token. It may make some (expand, forget and read again
  // what is to stay); false, or no function: the answer ends (StopReason::context_full).
  std::function<bool()> make_room;
};

struct Generated {
  // Without the end token that stopped it; tokens of a stop string are among them
  std::vector<TokenId> tokens;
  std::string text;  // without the stop string
  StopReason reason = StopReason::max_tokens;
  std::int64_t drafted = 0, accepted = 0;  // tokens that were guessed; of these, those that were right
};

// Continues the session's text from its logits. Every token of the answer is read into the session, apart
// from the one that ended it. Needs session.logits().
Generated generate(Session& session, const GenerateOptions& options);

}  // namespace kvtide
