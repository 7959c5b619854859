// answer.h: one prompt read and its answer written, token by token, to stdout. What run and chat have in
// common.
#pragma once

#include <chrono>
#include <optional>
#include <span>

#include "cli/commands/live_memory.h"
#include "cli/commands/opening.h"
#include "cli/output/report.h"
#include "kvtide/generate.h"
#include "kvtide/session.h"

namespace kvtide {

struct AnswerOptions {
  std::int64_t max_tokens = -1;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_tokens;
  SamplerOptions sampler;
  Draft draft = Draft::none;
  AnswerForm form;
  // What the repeat penalty sees beside the answer. Empty in a talk: the words of a template, of questions and of earlier
  // answers are common ones, and an answer that must avoid them begins with garbled words.
  std::vector<TokenId> history;
  bool stops_loops = false;  // an answer that repeats itself ends
  bool hash = false;         // of all logits that were used
  std::uint64_t hash_seed = 0;
  std::chrono::steady_clock::time_point start;  // when the prompt was in hand
};

struct Answer {
  Generated generated;
  TurnFigures figures;
  bool looped = false;  // it repeated itself and was ended
  std::optional<std::uint64_t> hash;
};

// What flags say about answers.
AnswerOptions answer_options(const Arguments& arguments, std::int64_t default_tokens);

// Makes the end marker of a template end an answer, as a token or, where the vocabulary has none, as a text.
void end_answers_as(const ChatTemplate& chat, const Tokenizer& tokenizer, AnswerOptions& options);

// Ctrl-C while reading throws Error(cancelled), and the session holds the chunks that were completed; while
// writing it ends the answer (StopReason::cancelled). Throws Error(context_full) before anything is read.
// An empty prompt goes on from the session's logits.
Answer answer(Session& session, ContextGuard& guard, LiveMemory& memory, std::span<const TokenId> prompt,
              const AnswerOptions& options);

}  // namespace kvtide
