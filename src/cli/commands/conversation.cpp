#include "cli/commands/conversation.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "base/local_time.h"
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
  const std::optional<std::int64_t> again = take_back(mark);
  if (!again && behind_snapshot_)
    return say("the memory has moved on and cannot be taken back; /load FILE brings the snapshot again");
  turns_.pop_back();
  messages_.resize(mark.messages);
  if (!again) forget_memory();
  std::string rest = again ? "" : "; what came before will be read again";
  if (again.value_or(0) > 0) rest = cat("; ", count_text(*again), " tokens before them were read again");
  say("the last message and its answer are taken back" + rest);
}

void Conversation::edit(const std::string& text) {
  const std::size_t before = turns_.size();
  undo();
  if (turns_.size() < before) turn(text);
}

void Conversation::turn(const std::string& text) {
  const Mark mark{open_.session.position(), upheavals(), messages_.size(), held_.size()};
  messages_.push_back({"user", text});
  open_.session.checkpoint();
  try {
    answer_last();
    turns_.push_back(mark);
  } catch (const Error& error) {
    messages_.pop_back();
    if (error.code() == ErrorCode::cancelled) {
      // The memory may hold half a message now, which no template can go on from.
      const bool taken_back = take_back(mark).has_value();
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
  held_.clear();
  base_ = 0;
  // Positions of turns meant something in the memory that is gone: taking them back reads again.
  for (Mark& mark : turns_) mark.upheavals = -1;
}

std::optional<std::int64_t> Conversation::take_back(const Mark& mark) {
  const Session& session = open_.session;
  if (mark.upheavals != upheavals()) return std::nullopt;
  if (session.position() == mark.position) return 0;
  if (session.position() < mark.position) return std::nullopt;
  if (mark.position == 0 && !behind_snapshot_) {
    memory_.forget();
    held_.clear();
    return 0;
  }
  if (!can_go_back_to(mark.position)) return std::nullopt;
  const std::int64_t again = open_.session.truncate(mark.position).read_again;
  held_.resize(mark.text);
  return again;
}

bool Conversation::can_go_back_to(Pos length) const {
  const TransitionPlan plan = open_.session.plan(Truncate{length, true});
  return plan && plan.expected().read_again < length;
}

void Conversation::go_on_behind_snapshot() {
  held_.clear();
  base_ = open_.session.position();
  messages_.clear();
  turns_.clear();
  behind_snapshot_ = !open_.session.tokens().empty();
  if (!behind_snapshot_) {
    if (arguments_.system) messages_.push_back({"system", *arguments_.system});
    return;
  }
  say(cat("goes on behind ", count_text(open_.session.position()), " tokens of a snapshot"));
}

std::vector<TextSegment> Conversation::rendered() const {
  const ChatRender render{.now = local_time()};
  return behind_snapshot_ ? template_.render_behind_answer(messages_, render)
                          : template_.render(messages_, render);
}

EncodeOptions Conversation::encoding() const {
  EncodeOptions out;
  out.continues = behind_snapshot_;
  if (arguments_.no_bos && !behind_snapshot_) out.add_bos = false;
  return out;
}

ChatRest Conversation::new_tokens() {
  const std::vector<TextSegment> segments = rendered();
  const Session& session = open_.session;
  const std::vector<TokenId>& tokens = session.tokens();
  const auto from = std::min(static_cast<std::size_t>(base_), tokens.size());
  const auto held = std::span(tokens).subspan(from);
  ChatRest rest = rest_of_chat(open_.model.tokenizer(), segments, held_, held, encoding());
  if (rest.keep < held.size() && !keep_only(rest.keep, held.size()))
    rest = rest_of_chat(open_.model.tokenizer(), segments, "", {}, encoding());
  return rest;
}

bool Conversation::keep_only(std::size_t keep, std::size_t held) {
  const Pos end = base_ + static_cast<Pos>(keep);
  const bool kept = keep > 0 && can_go_back_to(end);
  if (!kept && base_ > 0)
    throw Error(
        ErrorCode::unsupported,
        "the chat template writes the talk so far another way now, and the memory behind the snapshot has "
        "moved on; /load FILE brings the snapshot again");
  std::int64_t again = static_cast<std::int64_t>(kept ? held - keep : held);
  if (kept)
    again += open_.session.truncate(end).read_again;
  else
    forget_memory();
  say(cat("the chat template writes the talk so far another way now: ", count_text(again),
          " tokens are read again"));
  ++rereads_;
  return kept;
}

void Conversation::answer_last() {
  options_.start = std::chrono::steady_clock::now();
  // Every turn draws other numbers: an answer that was taken back does not come again.
  options_.sampler.seed = arguments_.sampler.seed + report_.turns.size();
  const ChatRest rest = new_tokens();
  if (open_.session.position() == 0) memory_.check_prompt(static_cast<std::int64_t>(rest.read.size()));
  const Answer result = answer(open_.session, guard_, memory_, rest.read, options_);
  write_result("\n");
  const Generated& generated = result.generated;
  messages_.push_back({"assistant", generated.text});
  held_ = rest.text + generated.text;
  if (generated.reason == StopReason::stop_string)
    held_ = rest.text + open_.model.tokenizer().decode(generated.tokens);
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
