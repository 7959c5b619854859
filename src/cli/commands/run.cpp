// kvtide run: read a prompt and continue it.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/local_time.h"
#include "base/text.h"
#include "cli/commands/answer.h"
#include "cli/commands/commands.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/input_text.h"
#include "cli/commands/interrupt.h"
#include "cli/commands/live_memory.h"
#include "cli/commands/opening.h"
#include "cli/output/file_kind.h"
#include "cli/output/output_file.h"
#include "cli/output/report.h"
#include "cli/output/terminal.h"
#include "formats/text_file.h"
#include "kvtide/chat.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::int64_t kDefaultTokens = 256;
// A budget leaves room for so many tokens behind a text, at least: for questions about it.
constexpr std::int64_t kForQuestions = 1024;

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

// What the flags give to read, as tokens. Refers to the arguments and the model.
class Prompt {
 public:
  Prompt(const Arguments& arguments, const Model& model, std::optional<InputText> input)
      : arguments_(arguments), model_(model), input_(std::move(input)) {
    if (arguments.chat) chat_ = choose_template(model, arguments);
  }

  const std::optional<ChatTemplate>& chat() const { return chat_; }

  // How long the text will be that starts here, answer and questions included.
  std::int64_t expected_tokens() const {
    const std::int64_t answer = arguments_.max_tokens.value_or(kDefaultTokens);
    return static_cast<std::int64_t>(tokens(Place::start).size()) + std::max(answer, kForQuestions);
  }

  // A prompt that begins with all the tokens of the snapshot is the one whose reading was interrupted: its rest is
  // read. Any other goes behind them, which is said of a document.
  std::vector<TokenId> to_read(const Session& session) const {
    if (!input_) return {};
    std::vector<TokenId> whole = tokens(Place::start);
    const std::size_t held = session.tokens().size();
    if (held == 0) return whole;
    if (!begins_with_held(whole, session)) {
      if (!arguments_.prompt || arguments_.file)
        say(cat("note: ", arguments_.file.value_or("-") == "-" ? "stdin" : *arguments_.file,
                ": a new text, read behind the ", count_text(session.position()),
                " tokens of another, which ", arguments_.memory.load_state, " holds"));
      return tokens(Place::behind);
    }
    say(cat("the prompt begins with the ", count_text(static_cast<std::int64_t>(held)),
            " tokens of the snapshot; reading goes on behind them"));
    whole.erase(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(held));
    return whole;
  }

  // The same command would find its prompt in a snapshot of this session, and read the rest.
  bool goes_on(const Session& session) const {
    return input_ && begins_with_held(tokens(Place::start), session);
  }

 private:
  static bool begins_with_held(const std::vector<TokenId>& whole, const Session& session) {
    const std::vector<TokenId>& held = session.tokens();
    return whole.size() >= held.size() && std::equal(held.begin(), held.end(), whole.begin());
  }

  std::vector<TokenId> tokens(Place place) const {
    if (chat_) return chat_tokens(place);
    EncodeOptions encode;
    encode.continues = place == Place::behind;
    return encode_text(model_.tokenizer(), *input_, arguments_, encode);
  }

  std::vector<TokenId> chat_tokens(Place place) const {
    std::vector<ChatMessage> messages;
    const bool behind = place == Place::behind;
    if (arguments_.system && !behind) messages.push_back({"system", *arguments_.system});
    messages.push_back({"user", input_->text});
    EncodeOptions options;
    options.continues = behind;
    if (arguments_.no_bos && !behind) options.add_bos = false;
    const ChatRender render{.now = local_time()};
    return encode_chat(
        model_.tokenizer(),
        behind ? chat_->render_behind_answer(messages, render) : chat_->render(messages, render), options);
  }

  const Arguments& arguments_;
  const Model& model_;
  std::optional<InputText> input_;
  std::optional<ChatTemplate> chat_;
};

// How what was read can be used again.
std::string way_on(const Session& session, const Arguments& arguments, const std::string& then) {
  const std::string &saved = arguments.memory.save_state, &loaded = arguments.memory.load_state;
  if (session.position() == 0) return "";
  if (saved.empty()) return "; they are gone now: the same command with --save-state FILE keeps them";
  if (then.empty()) return cat("; --load-state ", saved, " goes on from here");
  if (saved == loaded) return cat("; the same command ", then);
  return cat("; the same command with --load-state ", saved,
             loaded.empty() ? " " : " instead of " + loaded + " ", then);
}

int say_what_was_kept(const Session& session, std::string_view why, const std::string& way) {
  say(cat("kvtide: Ctrl-C, ", why, ": ", count_text(session.position()), " tokens are read and held (KV ",
          bytes_text(session.memory().kv), ")", way));
  return exit_status(ErrorCode::cancelled);
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

AnswerForm form_of(const Arguments& arguments, const Tokenizer& tokenizer) {
  if (arguments.grammar) return AnswerForm::gbnf(tokenizer, read_whole_text(*arguments.grammar));
  if (!arguments.json_schema) return {};
  const std::string& given = *arguments.json_schema;
  const std::size_t first = given.find_first_not_of(" \t\n");
  const bool is_schema = first != given.npos && given[first] == '{';
  return AnswerForm::json_schema(tokenizer, is_schema ? given : read_whole_text(given));
}

AnswerOptions options_for_answer(const Arguments& arguments, const Session& session, const Prompt& prompt,
                                 std::span<const TokenId> tokens) {
  AnswerOptions options = answer_options(arguments, kDefaultTokens);
  options.form = form_of(arguments, session.model().tokenizer());
  if (prompt.chat()) {
    end_answers_as(*prompt.chat(), session.model().tokenizer(), options);
    return options;
  }
  options.history = session.tokens();
  options.history.insert(options.history.end(), tokens.begin(), tokens.end());
  return options;
}

// Refuses what cannot be read, before anything is.
void check_before(const Arguments& arguments, const LiveMemory& memory, const Session& session,
                  ContextGuard& guard, std::int64_t tokens) {
  if (tokens == 0 && session.logits().empty())
    throw Error(
        ErrorCode::invalid_argument,
        cat(arguments.memory.load_state, ": the snapshot holds no logits to go on from; give a prompt (-p)"));
  if (memory.refills()) guard.let_overflow();
  guard.before_reading(tokens);
  memory.check_prompt(tokens);
}

void report_run(const Arguments& arguments, const OpenModel& open, const Answer& result, LiveMemory& memory) {
  end_answer(result.generated.text);
  RunReport report;
  read_session(report, open.session);  // what the run took, before a snapshot touches more memory
  memory.save();
  report.figures = result.figures;
  report.load_seconds = open.load_seconds;
  report.logits_hash = result.hash;
  report.tokens = result.generated.tokens;
  report.text = result.generated.text;
  report.events = memory.events();
  report.loaded_tokens = memory.loaded_tokens();
  print_report(report, open.session, {.everything = arguments.verbose, .hash = arguments.logits_hash});
  if (!arguments.report.empty())
    OutputFile::write_whole(arguments.report, report_json(report, open.session).text() + "\n");
}

}  // namespace

int run_command(const Arguments& arguments) {
  if (!arguments.report.empty()) OutputFile::check(arguments.report);
  if (!arguments.memory.save_state.empty()) check_snapshot_place(arguments.memory.save_state);
  const bool only_goes_on = !arguments.memory.load_state.empty() && !arguments.file && !arguments.prompt;
  std::optional<InputText> input;
  if (!only_goes_on) input = whole_prompt(arguments);
  OpenModel open(arguments, arguments.session.context,
                 [&](const Model& model) { return Prompt(arguments, model, input).expected_tokens(); });
  Session& session = open.session;
  LiveMemory memory(arguments, session);
  memory.load();
  const Prompt prompt(arguments, open.model, std::move(input));
  const std::vector<TokenId> tokens = prompt.to_read(session);
  ContextGuard guard(session);
  check_before(arguments, memory, session, guard, static_cast<std::int64_t>(tokens.size()));
  say(open.headline(arguments.verbose));
  if (prompt.chat()) say_if_it_cannot_chat(open.model);
  if (arguments.verbose) say_what_the_budget_picked(session);

  Answer result;
  try {
    result = answer(session, guard, memory, tokens, options_for_answer(arguments, session, prompt, tokens));
  } catch (const ReaderGone&) {
    memory.save();  // nobody reads the answer, but somebody wants what was read of the text
    throw;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::cancelled) throw;
    memory.save();
    return say_what_was_kept(session, error.message(),
                             way_on(session, arguments, prompt.goes_on(session) ? "reads the rest" : ""));
  }
  report_run(arguments, open, result, memory);
  if (result.generated.reason == StopReason::cancelled)
    return say_what_was_kept(session, "stopped while writing",
                             way_on(session, arguments, "without -p and -f goes on writing"));
  if (result.generated.reason == StopReason::context_full) {
    say(cat("kvtide: the context of ", count_text(session.context()),
            " tokens is full and the answer ends here; --kv-budget 64M or --overflow rolling never fills up, "
            "-c N gives more room"));
    return exit_status(ErrorCode::context_full);
  }
  return kExitFine;
}

}  // namespace kvtide
