#include "cli/commands/conversation.h"

#include <chrono>

#include "base/text.h"
#include "cli/commands/interrupt.h"
#include "cli/output/terminal.h"

namespace kvtide {

Conversation::Conversation(const Arguments& arguments, OpenModel& open)
    : arguments_(arguments),
      open_(open),
      template_(choose_template(open.model, arguments)),
      options_(answer_options(arguments, -1)),
      guard_(open.session),
      memory_(arguments, open.session) {
  if (memory_.refills()) guard_.let_overflow();
  end_answers_as(template_, open.model.tokenizer(), options_);
  options_.stops_loops = true;
  clear();
  if (arguments.memory.load_state.empty()) return;
  memory_.load();
  go_on_behind_snapshot();
}

void Conversation::load(const std::string& path) {
  memory_.load(path);
  go_on_behind_snapshot();
}

void Conversation::clear() {
  messages_.clear();
  turns_.clear();
  behind_snapshot_ = false;
  if (arguments_.system) messages_.push_back({"system", *arguments_.system});
  forget_memory();
}

void Conversation::undo() {
  if (turns_.empty()) return say("there is nothing to take back");
  const Mark mark = turns_.back();
  const bool taken_back = take_back(mark);
  if (!taken_back && behind_snapshot_)
    return say("the memory has moved on and cannot be taken back; /load FILE brings the snapshot again");
  turns_.pop_back();
  messages_.resize(mark.messages);
  if (taken_back) {
    read_ = mark.position > 0 ? messages_.size() : 0;
  } else {
    forget_memory();
  }
  say(cat("the last message and its answer are taken back",
          taken_back ? "" : "; what came before will be read again"));
}

void Conversation::turn(const std::string& text) {
  const Mark mark{open_.session.position(), memory_.refill_count(), messages_.size()};
  messages_.push_back({"user", text});
  try {
    answer_last();
    turns_.push_back(mark);
  } catch (const Error& error) {
    messages_.pop_back();
    if (error.code() == ErrorCode::cancelled) {
      // The memory may hold half a message now, which no template can go on from.
      const bool taken_back = take_back(mark);
      if (!taken_back) forget_memory();
      forget_interrupt();
      say(cat("Ctrl-C, ", error.message(), " of your message; it was dropped",
              taken_back ? "" : ", and what came before will be read again"));
    } else if (error.code() == ErrorCode::context_full || error.code() == ErrorCode::bad_text) {
      say(cat(
          "kvtide: ", error.message(),
          error.code() == ErrorCode::context_full ? "; /clear starts anew" : "; the message was dropped"));
      remember(error);
    } else {
      throw;
    }
  }
}

void Conversation::forget_memory() {
  memory_.forget();
  read_ = 0;
  // Positions of turns meant something in the memory that is gone: taking them back reads again.
  for (Mark& mark : turns_) mark.refills = -1;
}

bool Conversation::take_back(const Mark& mark) {
  const Session& session = open_.session;
  if (mark.refills != memory_.refill_count()) return false;
  if (session.position() == mark.position) return true;
  if (session.position() < mark.position) return false;
  if (mark.position == 0 && !behind_snapshot_) {
    memory_.forget();
    return true;
  }
  if (mark.position == 0 || !session.plan(Truncate{mark.position})) return false;
  open_.session.apply(Truncate{mark.position});
  return true;
}

void Conversation::go_on_behind_snapshot() {
  read_ = 0;
  messages_.clear();
  turns_.clear();
  behind_snapshot_ = !open_.session.tokens().empty();
  if (!behind_snapshot_) {
    if (arguments_.system) messages_.push_back({"system", *arguments_.system});
    return;
  }
  messages_ = earlier_turn();
  read_ = messages_.size();
  say(cat("goes on behind ", count_text(open_.session.position()), " tokens of a snapshot"));
}

std::vector<TokenId> Conversation::new_tokens() const {
  const RenderOptions render{.first = read_};
  EncodeOptions encode;
  encode.continues = read_ > 0;
  const std::vector<TextSegment> segments = template_.render(messages_, render);
  return open_.model.tokenizer().encode(segments, encode);
}

void Conversation::answer_last() {
  options_.start = std::chrono::steady_clock::now();
  // Every turn draws other numbers: an answer that was taken back does not come again.
  options_.sampler.seed = arguments_.sampler.seed + report_.turns.size();
  const std::vector<TokenId> prompt = new_tokens();
  if (read_ == 0) memory_.check_prompt(static_cast<std::int64_t>(prompt.size()));
  const Answer result = answer(open_.session, guard_, memory_, prompt, options_);
  write_result("\n");
  const Generated& generated = result.generated;
  messages_.push_back({"assistant", generated.text});
  read_ = messages_.size();
  if (result.hash) report_.logits_hash = options_.hash_seed = *result.hash;
  add_to_report(result);
  say_figures(result.figures);
  if (result.looped)
    say("the answer began to repeat itself and was stopped; /undo takes it back, and asking again may help");
  else
    say_why_it_ended(generated);
}

void Conversation::say_why_it_ended(const Generated& generated) {
  if (generated.reason == StopReason::cancelled) {
    forget_interrupt();
    say("Ctrl-C, the answer was cut short; what was written of it is kept");
  }
  if (generated.reason == StopReason::context_full) {
    say(cat("kvtide: the context of ", count_text(open_.session.context()),
            " tokens is full and the answer ends here; /clear starts anew, --kv-budget 64M never fills up, "
            "-c gives more room"));
    if (status_ == kExitFine) status_ = exit_status(ErrorCode::context_full);
  }
}

void Conversation::add_to_report(const Answer& result) {
  const TurnFigures& turn = result.figures;
  TurnFigures& sum = report_.figures;
  sum.prefill_tokens += turn.prefill_tokens;
  sum.prefill_seconds += turn.prefill_seconds;
  sum.decode_tokens += turn.decode_tokens;
  sum.drafted += turn.drafted;
  sum.accepted += turn.accepted;
  sum.decode_seconds += turn.decode_seconds;
  if (!sum.ttft_seconds) sum.ttft_seconds = turn.ttft_seconds;
  sum.stop_reason = turn.stop_reason;
  report_.turns.push_back(turn);
  report_.tokens.insert(report_.tokens.end(), result.generated.tokens.begin(), result.generated.tokens.end());
  report_.text += cat(report_.text.empty() ? "" : "\n", result.generated.text);
}

void Conversation::say_figures(const TurnFigures& turn) const {
  const std::string position = count_text(open_.session.position());
  const auto speed = [](std::int64_t tokens, double rate) {
    return tokens == 0 ? "" : cat(" at ", number_text(rate, 1), " tok/s");
  };
  say(cat("[read ", count_text(turn.prefill_tokens), " new tokens",
          speed(turn.prefill_tokens, turn.prefill_rate()), ", wrote ", count_text(turn.decode_tokens),
          speed(turn.decode_tokens, turn.decode_rate()), "; ",
          open_.session.options().procedural
              ? cat(position, " tokens read")
              : cat("holds ", position, " of ", count_text(open_.session.context())),
          ", KV ", bytes_text(open_.session.memory().kv), "]"));
}

}  // namespace kvtide
