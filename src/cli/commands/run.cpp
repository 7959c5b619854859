// kvtide run: read a prompt and continue it.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "base/text.h"
#include "cli/commands/answer.h"
#include "cli/commands/commands.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/input_text.h"
#include "cli/commands/interrupt.h"
#include "cli/commands/live_memory.h"
#include "cli/commands/opening.h"
#include "cli/output/output_file.h"
#include "cli/output/report.h"
#include "cli/output/terminal.h"
#include "kvtide/chat.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::int64_t kDefaultTokens = 256;

// A document and the question about it, with a blank line between them; or the only one there is. Nothing
// follows the question: what a line feed behind it asks for is another line, not the rest of this one.
InputText whole_prompt(const Arguments& arguments) {
  if (!arguments.file || !arguments.prompt) return given_text(arguments);
  InputText input = read_document(*arguments.file, arguments);
  while (input.text.ends_with('\n')) input.text.pop_back();
  input.text += cat("\n\n", prompt_text(*arguments.prompt).text);
  return input;
}

// Where the prompt stands: at the start of a text, or behind one that a snapshot holds.
enum class Place { start, behind };

std::vector<TokenId> chat_tokens(const Model& model, const ChatTemplate& chat, const InputText& input,
                                 const Arguments& arguments, Place place) {
  std::vector<ChatMessage> messages;
  if (arguments.system) messages.push_back({"system", *arguments.system});
  RenderOptions render;
  EncodeOptions options;
  if (place == Place::behind) {
    messages = earlier_turn();
    render.first = messages.size();
    options.continues = true;
  } else if (arguments.no_bos) {
    options.add_bos = false;
  }
  messages.push_back({"user", input.text});
  const std::vector<TextSegment> segments = chat.render(messages, render);
  return model.tokenizer().encode(segments, options);
}

// What is to be read. A prompt that begins with all the tokens of the snapshot is the one whose reading was
// interrupted: its rest is read. Any other goes behind them, which is said of a document.
template <class Encode>
std::vector<TokenId> tokens_to_read(const Session& session, const Arguments& arguments,
                                    const Encode& encode) {
  const std::vector<TokenId>& held = session.tokens();
  std::vector<TokenId> whole = encode(Place::start);
  if (held.empty()) return whole;
  if (whole.size() < held.size() || !std::equal(held.begin(), held.end(), whole.begin())) {
    if (!arguments.prompt || arguments.file)
      say(cat("note: ", arguments.file.value_or("-") == "-" ? "stdin" : *arguments.file,
              ": a new text, read behind the ", count_text(session.position()), " tokens of another, which ",
              arguments.memory.load_state, " holds"));
    return encode(Place::behind);
  }
  say(cat("the prompt begins with the ", count_text(static_cast<std::int64_t>(held.size())),
          " tokens of the snapshot; reading goes on behind them"));
  whole.erase(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(held.size()));
  return whole;
}

void say_what_was_kept(const Session& session, const Arguments& arguments, std::string_view why) {
  const std::string& path = arguments.memory.save_state;
  say(cat("kvtide: ", why, ": ", count_text(session.position()), " tokens are read and held (KV ",
          bytes_text(session.memory().kv), ")",
          session.position() == 0 ? ""
          : path.empty()          ? "; they are gone now: the same command with --save-state FILE keeps them"
                                  : cat("; --load-state ", path, " goes on from here")));
}

// The figures begin on a line of their own, also where text and figures go to one file; a stdout that is none of these
// carries nothing but the answer.
void end_answer(const std::string& text) {
  if (text.empty() || text.ends_with('\n')) return;
  if (::isatty(STDOUT_FILENO) == 1)
    write_result("\n");
  else if (::isatty(STDERR_FILENO) != 1)
    say("");
}

void add_answer(RunReport& report, const OpenModel& open, LiveMemory& memory, const Answer& result) {
  report.figures = result.figures;
  report.load_seconds = open.load_seconds;
  report.logits_hash = result.hash;
  report.tokens = result.generated.tokens;
  report.text = result.generated.text;
  report.events = memory.events();
  report.loaded_tokens = memory.loaded_tokens();
}

// Why the answer ended, as far as the exit status tells it.
int status_of(StopReason reason, const Session& session, const Arguments& arguments) {
  if (reason == StopReason::cancelled) {
    say_what_was_kept(session, arguments, "Ctrl-C, stopped while writing");
    return exit_status(ErrorCode::cancelled);
  }
  if (reason == StopReason::context_full) {
    say(cat("kvtide: the context of ", count_text(session.context()),
            " tokens is full and the answer ends here; --kv-budget 64M or --overflow rolling never fills up, "
            "-c N gives more room"));
    return exit_status(ErrorCode::context_full);
  }
  return kExitFine;
}

}  // namespace

int run_command(const Arguments& arguments) {
  if (!arguments.report.empty()) OutputFile::check(arguments.report);
  if (!arguments.memory.save_state.empty()) OutputFile::check_replaceable(arguments.memory.save_state);
  const bool only_goes_on = !arguments.memory.load_state.empty() && !arguments.file && !arguments.prompt;
  std::optional<InputText> input;
  if (!only_goes_on) input = whole_prompt(arguments);
  OpenModel open(arguments, arguments.session.context);
  Session& session = open.session;
  LiveMemory memory(arguments, session);
  memory.load();

  AnswerOptions options = answer_options(arguments, kDefaultTokens);
  std::optional<ChatTemplate> chat;
  if (arguments.chat) {
    chat = choose_template(open.model, arguments);
    end_answers_as(*chat, open.model.tokenizer(), options);
  }
  std::vector<TokenId> prompt;
  options.history = session.tokens();
  if (input) {
    prompt = tokens_to_read(session, arguments, [&](Place place) {
      if (chat) return chat_tokens(open.model, *chat, *input, arguments, place);
      EncodeOptions encode;
      encode.continues = place == Place::behind;
      return encode_text(open.model.tokenizer(), *input, arguments, encode);
    });
  }
  if (prompt.empty() && session.logits().empty())
    throw Error(
        ErrorCode::invalid_argument,
        cat(arguments.memory.load_state, ": the snapshot holds no logits to go on from; give a prompt (-p)"));
  ContextGuard guard(session);
  if (memory.refills()) guard.let_overflow();
  guard.before_reading(static_cast<std::int64_t>(prompt.size()));
  memory.check_prompt(static_cast<std::int64_t>(prompt.size()));
  say(open.headline(arguments.verbose));
  if (arguments.verbose) say_what_the_budget_picked(session);

  Answer result;
  try {
    result = answer(session, guard, memory, prompt, options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::cancelled) throw;
    memory.save();
    say_what_was_kept(session, arguments, cat("Ctrl-C, ", error.message()));
    return exit_status(ErrorCode::cancelled);
  }
  end_answer(result.generated.text);

  RunReport report;
  read_session(report, session);  // what the run took, before a snapshot touches more memory
  memory.save();
  add_answer(report, open, memory, result);
  print_report(report, session, {.everything = arguments.verbose, .hash = arguments.logits_hash});
  if (!arguments.report.empty())
    OutputFile::write_whole(arguments.report, report_json(report, session).text() + "\n");
  return status_of(result.generated.reason, session, arguments);
}

}  // namespace kvtide
