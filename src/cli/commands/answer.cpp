#include "cli/commands/answer.h"

#include <algorithm>

#include "base/text.h"
#include "cli/commands/interrupt.h"
#include "cli/commands/loop_guard.h"
#include "cli/output/procedural_report.h"
#include "cli/output/progress.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Piece by piece where the prompt is longer than what fits: the memory makes room between them.
void read_prompt(Session& session, LiveMemory& memory, std::span<const TokenId> prompt) {
  Progress progress("reading", session);
  const auto total = static_cast<std::int64_t>(prompt.size());
  std::int64_t before = 0;
  while (before < total) {
    if (session.room() < 1) memory.make_room();  // if not, read() says what is wrong
    const std::int64_t piece = std::clamp<std::int64_t>(session.room(), 1, total - before);
    std::int64_t now = before;
    ReadOptions read;
    read.need_logits = before + piece == total;
    read.progress = [&](std::int64_t done) {
      now = before + done;
      progress.update(now, total, drift_words(session));
      memory.pause();
      return !interrupted() || now == total;
    };
    try {
      session.read(prompt.subspan(static_cast<std::size_t>(before), static_cast<std::size_t>(piece)), read);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::cancelled) throw;
      throw Error(ErrorCode::cancelled, cat("stopped after ", now, " of ", total, " tokens"));
    }
    before += piece;
  }
}

}  // namespace

AnswerOptions answer_options(const Arguments& arguments, std::int64_t default_tokens) {
  AnswerOptions options;
  options.max_tokens = arguments.max_tokens.value_or(default_tokens);
  options.stop = arguments.stop;
  options.sampler = arguments.sampler;
  options.draft = arguments.draft;
  options.hash = arguments.logits_hash || !arguments.report.empty();
  options.start = Clock::now();
  return options;
}

void end_answers_as(const ChatTemplate& chat, const Tokenizer& tokenizer, AnswerOptions& options) {
  if (chat.end_marker().empty()) return;
  if (const auto token = tokenizer.find(chat.end_marker()))
    options.stop_tokens.push_back(*token);
  else
    options.stop.emplace_back(chat.end_marker());
}

Answer answer(Session& session, ContextGuard& guard, LiveMemory& memory, std::span<const TokenId> prompt,
              const AnswerOptions& options) {
  Answer result;
  TurnFigures& figures = result.figures;
  guard.before_reading(static_cast<std::int64_t>(prompt.size()));
  const auto read_start = Clock::now();
  const double saved_before = memory.saving_seconds();
  read_prompt(session, memory, prompt);
  const double saved_reading = memory.saving_seconds();  // snapshots are not part of reading and writing
  figures.prefill_tokens = static_cast<std::int64_t>(prompt.size());
  figures.prefill_seconds = seconds_since(read_start) - (saved_reading - saved_before);
  memory.prompt_read();

  std::uint64_t hash = options.hash_seed;
  double hashing = 0.0;  // is not part of decoding
  bool asked_before = false;
  LoopGuard loops;
  GenerateOptions generating;
  generating.max_tokens = options.max_tokens;
  generating.stop = options.stop;
  generating.stop_tokens = options.stop_tokens;
  generating.sampler = options.sampler;
  generating.form = options.form;
  generating.history = options.history;
  generating.on_text = [&](std::string_view text) {
    if (!figures.ttft_seconds) figures.ttft_seconds = seconds_since(options.start);
    write_result(text);
    result.looped = options.stops_loops && loops.add(text);
    return !interrupted() && !result.looped;
  };
  generating.draft = options.draft;
  generating.before_pass = [&] {
    if (session.room() > 0) guard.before_reading(1);
    memory.pause();
  };
  generating.on_logits = [&](std::span<const float> logits) {
    // on_text ends the answer; tokens without text must not keep Ctrl-C waiting for ever.
    if (interrupted() && asked_before) throw Error(ErrorCode::cancelled, "stopped while writing");
    asked_before = interrupted();
    if (!options.hash) return;
    const auto hash_start = Clock::now();
    hash = hash_logits(logits, hash);
    hashing += seconds_since(hash_start);
  };
  generating.make_room = [&] { return memory.make_room(); };
  const auto decode_start = Clock::now();
  result.generated = generate(session, generating);
  figures.decode_seconds = seconds_since(decode_start) - hashing - (memory.saving_seconds() - saved_reading);
  figures.decode_tokens = static_cast<std::int64_t>(result.generated.tokens.size());
  figures.drafted = result.generated.drafted;
  figures.accepted = result.generated.accepted;
  figures.stop_reason = result.looped ? "loop" : stop_reason_name(result.generated.reason);
  if (options.hash && options.max_tokens == 0) hash = hash_logits(session.logits(), hash);
  if (options.hash) result.hash = hash;
  return result;
}

}  // namespace kvtide
