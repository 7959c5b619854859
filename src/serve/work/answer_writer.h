// answer_writer.h: one answer as it grows: from logits to tokens to text, and when it ends. The scheduler reads the tokens.
//
// Ownership: refers to the tokenizer and the spec, which must outlive it. Thread rules: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/stop_filter.h"
#include "kvtide/tokenizer.h"
#include "serve/work/answer.h"
#include "text/utf8.h"

namespace kvtide::serve {

class AnswerWriter {
 public:
  // choice: which of the answers to the prompt. Throws Error(invalid_argument) for a sampler out of range.
  AnswerWriter(const Tokenizer& tokenizer, const AnswerSpec& spec, int choice, std::int64_t max_tokens);

  // The next token, which is to be read before the next call; nullopt: the answer has ended. Throws as Sampler::pick.
  std::optional<TokenId> choose(std::span<const float> logits);
  // Ends the answer from outside.
  void end(StopReason reason);

  // What has come since the last call.
  AnswerPiece take();
  bool has_piece() const { return !piece_.text.empty() || !piece_.tokens.empty(); }
  bool ended() const { return reason_.has_value(); }
  StopReason reason() const { return *reason_; }
  std::string stop() const { return filter_.which() == nullptr ? "" : *filter_.which(); }
  std::int64_t written() const { return written_; }

 private:
  std::span<const float> adjusted(std::span<const float> logits);
  void note_logprob(std::span<const float> logits, TokenId token);

  const Tokenizer& tokenizer_;
  const AnswerSpec& spec_;
  std::int64_t max_tokens_;
  Sampler sampler_;
  StopFilter filter_;
  Utf8Stream characters_;
  std::vector<TokenId> recent_;  // for the repeat penalty
  std::map<TokenId, std::int64_t> counts_;
  std::vector<float> logits_;  // with penalties and bias
  AnswerPiece piece_;
  grammar::Constraint::State place_ = 0;  // in what the answer must look like
  std::int64_t written_ = 0;
  std::optional<StopReason> reason_;
};

}  // namespace kvtide::serve
