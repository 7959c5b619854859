// answer.h: what is asked of the scheduler, and what it tells of it. Plain values and one interface.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvtide/generate.h"
#include "kvtide/state.h"
#include "kvtide/types.h"
#include "serve/work/memory_choice.h"
#include "text/grammar/constraint.h"

namespace kvtide::serve {

// Where an answer goes on from, when the request names a state instead of leaving that to the prefix cache.
struct StartingPoint {
  State state;
  bool by_number = false;  // only requests that name such a state may go on from it
};

struct AnswerSpec {
  std::shared_ptr<grammar::Constraint> constraint;  // what the answer must look like; nullptr: like anything
  std::vector<TokenId> prompt;
  MemoryChoice memory;                                 // of an answer without a starting point
  std::shared_ptr<StartingPoint> from;                 // its tokens are what the prompt begins with
  SamplerOptions sampler;                              // choice i draws with seed + i
  double frequency_penalty = 0, presence_penalty = 0;  // taken off logits of tokens the answer holds
  std::vector<std::pair<TokenId, float>> bias;         // added to logits
  std::vector<std::string> stop;
  std::vector<TokenId> stop_tokens;  // in addition to the tokenizer's end tokens
  std::vector<TokenId> shown;        // control tokens that are text of the answer
  bool ignore_end = false;           // go on behind tokens that end a text
  std::int64_t max_tokens = -1;      // -1: as many as the server gives
  int choices = 1;
  int top_logprobs = -1;  // -1: no log probabilities
  std::string key;        // requests of one key take turns with those of others
};

struct TokenLogprob {
  TokenId id = 0;
  double logprob = 0.0;  // natural logarithm, of the model's own probabilities
  std::vector<std::pair<TokenId, double>> top;
};

// Text of one choice, as soon as it is certain.
struct AnswerPiece {
  int choice = 0;
  std::string text;
  std::vector<TokenId> tokens;         // since the piece before; their text may come later
  std::vector<TokenLogprob> logprobs;  // of these tokens, where they were asked for
};

struct AnswerFigures {
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;  // of the prompt, that were not read again
  std::int64_t written_tokens = 0;
  double queued_ms = 0, prompt_ms = 0, writing_ms = 0;
};

// Called from the scheduler's thread, in this order: begun, then pieces and ends of choices, then done; or failed at
// any time, and nothing behind it.
class AnswerListener {
 public:
  virtual ~AnswerListener() = default;
  virtual void begun(const AnswerFigures& figures) = 0;
  virtual void piece(AnswerPiece piece) = 0;
  // stop: the text that ended it (StopReason::stop_string).
  virtual void ended(int choice, StopReason reason, const std::string& stop) = 0;
  virtual void done(const AnswerFigures& figures) = 0;
  virtual void failed(const Error& error) = 0;
  virtual bool gone() const = 0;     // nobody waits for the answer
  virtual bool stalled() const = 0;  // the client takes nothing at the moment: write no more for it
};

// An answer whose end cannot be told, because memory ended, has failed; and who cannot be told of that is left alone.
void tell_failure(AnswerListener& listener, const Error& error) noexcept;
void tell_end(AnswerListener& listener, const AnswerFigures& figures) noexcept;

}  // namespace kvtide::serve
