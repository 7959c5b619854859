#include "cli/answer.h"

#include "base/text.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void read_prompt(Session& session, std::span<const TokenId> prompt) {
  Progress progress("reading", session);
  const auto total = static_cast<std::int64_t>(prompt.size());
  ReadOptions read;
  read.progress = [&](std::int64_t done) {
    progress.update(done, total);
    return !interrupted() || done == total;
  };
  session.read(prompt, read);
}

}  // namespace

AnswerOptions answer_options(const Arguments& arguments, std::int64_t default_tokens) {
  AnswerOptions options;
  options.max_tokens = arguments.max_tokens.value_or(default_tokens);
  options.stop = arguments.stop;
  options.sampler = arguments.sampler;
  options.hash = arguments.logits_hash || !arguments.report.empty();
  options.start = Clock::now();
  return options;
}

void end_answers_as(const ChatTemplate& chat, const Tokenizer& tokenizer, AnswerOptions& options) {
  if (const auto token = tokenizer.find(chat.end_marker()))
    options.stop_tokens.push_back(*token);
  else
    options.stop.emplace_back(chat.end_marker());
}

Answer answer(Session& session, ContextGuard& guard, std::span<const TokenId> prompt,
              const AnswerOptions& options) {
  Answer result;
  TurnFigures& figures = result.figures;
  guard.before_reading(static_cast<std::int64_t>(prompt.size()));
  const auto read_start = Clock::now();
  read_prompt(session, prompt);
  figures.prefill_tokens = static_cast<std::int64_t>(prompt.size());
  figures.prefill_seconds = seconds_since(read_start);

  std::uint64_t hash = options.hash_seed;
  double hashing = 0.0;  // is not part of decoding
  bool asked_before = false;
  GenerateOptions generating;
  generating.max_tokens = options.max_tokens;
  generating.stop = options.stop;
  generating.stop_tokens = options.stop_tokens;
  generating.sampler = options.sampler;
  generating.history = options.history;
  generating.history.insert(generating.history.end(), prompt.begin(), prompt.end());
  generating.on_text = [&](std::string_view text) {
    if (!figures.ttft_seconds) figures.ttft_seconds = seconds_since(options.start);
    write_result(text);
    return !interrupted();
  };
  generating.on_logits = [&](std::span<const float> logits) {
    if (session.position() < session.context()) guard.before_reading(1);
    // on_text ends the answer; tokens without text must not keep Ctrl-C waiting for ever.
    if (interrupted() && asked_before) throw Error(ErrorCode::cancelled, "stopped while writing");
    asked_before = interrupted();
    if (!options.hash) return;
    const auto hash_start = Clock::now();
    hash = hash_logits(logits, hash);
    hashing += seconds_since(hash_start);
  };
  const auto decode_start = Clock::now();
  result.generated = generate(session, generating);
  figures.decode_seconds = seconds_since(decode_start) - hashing;
  figures.decode_tokens = static_cast<std::int64_t>(result.generated.tokens.size());
  figures.stop_reason = stop_reason_name(result.generated.reason);
  if (options.hash && options.max_tokens == 0) hash = hash_logits(session.logits(), hash);
  if (options.hash) result.hash = hash;
  return result;
}

}  // namespace kvtide
