// kvtide chat: a conversation over several turns. The KV memory of earlier turns is kept: a turn reads only
// what is new.
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/arguments/nearest.h"
#include "cli/commands/answer.h"
#include "cli/commands/commands.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/interrupt.h"
#include "cli/commands/live_memory.h"
#include "cli/commands/opening.h"
#include "cli/commands/stdin_lines.h"
#include "cli/output/output_file.h"
#include "cli/output/report.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

class Conversation {
 public:
  Conversation(const Arguments& arguments, OpenModel& open)
      : arguments_(arguments),
        open_(open),
        template_(choose_template(open.model, arguments)),
        options_(answer_options(arguments, -1)),
        guard_(open.session),
        memory_(arguments, open.session) {
    if (memory_.refills()) guard_.let_overflow();
    end_answers_as(template_, open.model.tokenizer(), options_);
    clear();
    if (arguments.memory.load_state.empty()) return;
    memory_.load();
    go_on_behind_snapshot();
  }

  // A snapshot holds what was read, not who said it: the next message goes behind the end of an answer.
  void load(const std::string& path) {
    memory_.load(path);
    go_on_behind_snapshot();
  }

  // Forgets all turns, and with them their memory.
  void clear() {
    messages_.clear();
    if (arguments_.system) messages_.push_back({"system", *arguments_.system});
    forget_memory();
  }

  LiveMemory& memory() { return memory_; }

  // One turn. Failures that leave the conversation usable are said, and remembered as the exit status.
  void turn(const std::string& text) {
    const Pos before = open_.session.position();
    const std::int64_t refills = memory_.refill_count();
    messages_.push_back({"user", text});
    try {
      answer_last();
    } catch (const Error& error) {
      messages_.pop_back();
      if (error.code() == ErrorCode::cancelled) {
        // The memory may hold half a message now, which no template can go on from.
        const bool taken_back = refills == memory_.refill_count() && take_back(before);
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

  RunReport& report() { return report_; }
  int status() const { return status_; }
  void remember(const Error& error) {
    if (status_ == kExitFine) status_ = exit_status(error.code());
  }

 private:
  void forget_memory() {
    memory_.forget();
    read_ = 0;
    history_.clear();
  }

  // What came before a message, bit for bit; false where a window has moved on.
  bool take_back(Pos before) {
    const Session& session = open_.session;
    if (session.position() == before) return true;
    if (before == 0 || session.position() < before || !session.plan(Truncate{before})) return false;
    open_.session.apply(Truncate{before});
    return true;
  }

  void go_on_behind_snapshot() {
    history_ = open_.session.tokens();
    read_ = 0;
    messages_.clear();
    if (history_.empty()) {
      if (arguments_.system) messages_.push_back({"system", *arguments_.system});
      return;
    }
    messages_ = earlier_turn();
    read_ = messages_.size();
    say(cat("goes on behind ", count_text(open_.session.position()), " tokens of a snapshot"));
  }

  std::vector<TokenId> new_tokens() const {
    const RenderOptions render{.first = read_};
    EncodeOptions encode;
    encode.continues = read_ > 0;
    const std::vector<TextSegment> segments = template_.render(messages_, render);
    return open_.model.tokenizer().encode(segments, encode);
  }

  void answer_last() {
    options_.start = std::chrono::steady_clock::now();
    options_.history = history_;
    const std::vector<TokenId> prompt = new_tokens();
    if (read_ == 0) memory_.check_prompt(static_cast<std::int64_t>(prompt.size()));
    const Answer result = answer(open_.session, guard_, memory_, prompt, options_);
    write_result("\n");
    const Generated& generated = result.generated;
    messages_.push_back({"assistant", generated.text});
    read_ = messages_.size();
    history_.insert(history_.end(), prompt.begin(), prompt.end());
    history_.insert(history_.end(), generated.tokens.begin(), generated.tokens.end());
    if (result.hash) report_.logits_hash = options_.hash_seed = *result.hash;
    add_to_report(result);
    say_figures(result.figures);
    if (generated.reason == StopReason::cancelled) {
      forget_interrupt();
      say("Ctrl-C, the answer was cut short; what was written of it is kept");
    }
    if (generated.reason == StopReason::context_full) {
      say(cat("kvtide: the context of ", count_text(open_.session.context()),
              " tokens is full and the answer ends here; /clear starts anew, -c gives more room"));
      if (status_ == kExitFine) status_ = exit_status(ErrorCode::context_full);
    }
  }

  void add_to_report(const Answer& result) {
    const TurnFigures& turn = result.figures;
    TurnFigures& sum = report_.figures;
    sum.prefill_tokens += turn.prefill_tokens;
    sum.prefill_seconds += turn.prefill_seconds;
    sum.decode_tokens += turn.decode_tokens;
    sum.decode_seconds += turn.decode_seconds;
    if (!sum.ttft_seconds) sum.ttft_seconds = turn.ttft_seconds;
    sum.stop_reason = turn.stop_reason;
    report_.turns.push_back(turn);
    report_.tokens.insert(report_.tokens.end(), result.generated.tokens.begin(),
                          result.generated.tokens.end());
    report_.text += cat(report_.text.empty() ? "" : "\n", result.generated.text);
  }

  void say_figures(const TurnFigures& turn) const {
    const std::string position = count_text(open_.session.position());
    say(cat("[read ", count_text(turn.prefill_tokens), " new tokens at ", number_text(turn.prefill_rate(), 1),
            " tok/s, wrote ", count_text(turn.decode_tokens), " at ", number_text(turn.decode_rate(), 1),
            " tok/s; ",
            open_.session.options().procedural
                ? cat(position, " tokens read")
                : cat("holds ", position, " of ", count_text(open_.session.context())),
            ", KV ", bytes_text(open_.session.memory().kv), "]"));
  }

  const Arguments& arguments_;
  OpenModel& open_;
  ChatTemplate template_;
  AnswerOptions options_;
  ContextGuard guard_;
  LiveMemory memory_;
  std::vector<ChatMessage> messages_;
  std::size_t read_ = 0;          // messages whose text is in the memory
  std::vector<TokenId> history_;  // what the session holds
  RunReport report_;
  int status_ = kExitFine;
};

// /save FILE and /load FILE. Failures leave the conversation as it was.
bool obey_files(const std::string& line, Conversation& conversation) {
  const bool saves = line == "/save" || line.starts_with("/save ");
  if (!saves && line != "/load" && !line.starts_with("/load ")) return false;
  const std::size_t first = line.find_first_not_of(" \t", 5), last = line.find_last_not_of(" \t");
  if (first == line.npos) {
    say(cat(line.substr(0, 5), ": say which file, for instance ", line.substr(0, 5), " talk.kv"));
    return true;
  }
  const std::string path = line.substr(first, last + 1 - first);
  try {
    if (saves) {
      OutputFile::check_replaceable(path);
      conversation.memory().save(path);
      say(cat("saved: ", path));
    } else {
      conversation.load(path);
    }
  } catch (const Error& error) {
    say(cat("kvtide: ", error.message(), saves ? "" : "; the conversation goes on as it was"));
    conversation.remember(error);
  }
  return true;
}

// True when the line was a command; `done` when it was the last.
bool obey(const std::string& line, Conversation& conversation, bool& done) {
  if (!line.starts_with('/')) return false;
  static constexpr std::string_view kKnown[] = {"/exit", "/clear", "/help", "/save", "/load"};
  if (obey_files(line, conversation)) return true;
  if (line == "/exit") {
    done = true;
  } else if (line == "/clear") {
    conversation.clear();
    say("the conversation starts anew");
  } else if (line == "/help") {
    say("/clear forgets the conversation, /save FILE and /load FILE keep its memory and go on from it, /exit "
        "or "
        "Ctrl-D ends it; Ctrl-C cuts an answer short");
  } else {
    const std::string_view meant = nearest(line, kKnown);
    say(cat("there is no ", quoted(line),
            meant.empty() ? "; there are /exit, /clear, /save, /load and /help" : "; did you mean ", meant,
            meant.empty() ? "" : "?"));
  }
  return true;
}

}  // namespace

int chat_command(const Arguments& arguments) {
  if (!arguments.report.empty()) OutputFile::check(arguments.report);
  if (!arguments.memory.save_state.empty()) OutputFile::check_replaceable(arguments.memory.save_state);
  OpenModel open(arguments, arguments.session.context);
  Conversation conversation(arguments, open);
  say(cat(open.headline(arguments.verbose), stdin_is_terminal() ? "; /help lists commands" : ""));
  if (arguments.verbose) say_what_the_budget_picked(open.session);
  const bool shows_prompt = stdin_is_terminal() && ::isatty(STDERR_FILENO) == 1;

  int status = kExitFine;
  try {
    StdinLines lines;
    for (bool done = false; !done;) {
      if (shows_prompt) prompt_on_terminal("> ");
      const auto line = lines.next();
      if (!line) break;
      if (line->find_first_not_of(" \t") == line->npos || obey(*line, conversation, done)) continue;
      conversation.turn(*line);
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::cancelled) throw;
    say(cat(shows_prompt ? "\n" : "", "kvtide: Ctrl-C, ", error.message()));
    status = exit_status(error.code());
  }
  if (status == kExitFine) status = conversation.status();

  RunReport& report = conversation.report();
  report.load_seconds = open.load_seconds;
  if (report.turns.empty()) report.figures.stop_reason = "not_started";
  read_session(report, open.session);
  conversation.memory().save();
  report.events = conversation.memory().events();
  report.loaded_tokens = conversation.memory().loaded_tokens();
  print_report(report, open.session, {.everything = arguments.verbose});
  if (!arguments.report.empty())
    OutputFile::write_whole(arguments.report, report_json(report, open.session).text() + "\n");
  return status;
}

}  // namespace kvtide
