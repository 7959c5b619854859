// kvtide run: read a prompt and continue it.
#include <unistd.h>

#include <chrono>
#include <vector>

#include "base/text.h"
#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/exit_status.h"
#include "cli/input_text.h"
#include "cli/interrupt.h"
#include "cli/opening.h"
#include "cli/output_file.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "kvtide/chat.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::int64_t kDefaultTokens = 256;

// A document and the question about it, with a blank line between them; or the only one there is.
InputText whole_prompt(const Arguments& arguments) {
  if (!arguments.file || !arguments.prompt) return given_text(arguments);
  InputText input = read_text_file(*arguments.file);
  while (input.text.ends_with('\n')) input.text.pop_back();
  input.text += cat("\n\n", prompt_text(*arguments.prompt).text, arguments.chat ? "" : "\n");
  return input;
}

std::vector<TokenId> chat_tokens(const Model& model, const ChatTemplate& chat, const InputText& input,
                                 const Arguments& arguments) {
  std::vector<ChatMessage> messages;
  if (arguments.system) messages.push_back({"system", *arguments.system});
  messages.push_back({"user", input.text});
  EncodeOptions options;
  if (arguments.no_bos) options.add_bos = false;
  const std::vector<TextSegment> segments = chat.render(messages);
  return model.tokenizer().encode(segments, options);
}

void say_what_was_kept(const Session& session, std::string_view why) {
  say(cat("kvtide: ", why, ": ", count_text(session.position()), " tokens are read and held (KV ",
          bytes_text(session.memory().kv), ")"));
}

}  // namespace

int run_command(const Arguments& arguments) {
  if (!arguments.report.empty()) OutputFile::check(arguments.report);
  const InputText input = whole_prompt(arguments);
  OpenModel open(arguments, arguments.session.context);
  Session& session = open.session;

  AnswerOptions options = answer_options(arguments, kDefaultTokens);
  std::vector<TokenId> prompt;
  if (arguments.chat) {
    const ChatTemplate chat = choose_template(open.model, arguments);
    end_answers_as(chat, open.model.tokenizer(), options);
    prompt = chat_tokens(open.model, chat, input, arguments);
  } else {
    prompt = encode_text(open.model.tokenizer(), input, arguments);
  }
  ContextGuard guard(session);
  guard.before_reading(static_cast<std::int64_t>(prompt.size()));
  say(open.headline());

  Answer result;
  try {
    result = answer(session, guard, prompt, options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::cancelled) throw;
    say_what_was_kept(session, cat("Ctrl-C, ", error.message(), "; ", "nothing was written"));
    return exit_status(ErrorCode::cancelled);
  }
  if (!result.generated.text.empty() && ::isatty(STDOUT_FILENO) == 1) write_result("\n");

  RunReport report;
  report.figures = result.figures;
  report.load_seconds = open.load_seconds;
  report.logits_hash = result.hash;
  report.tokens = result.generated.tokens;
  report.text = result.generated.text;
  read_session(report, session);
  print_report(report, session, arguments.logits_hash);
  if (!arguments.report.empty()) {
    OutputFile file(arguments.report);
    file.write(report_json(report, session).text() + "\n");
    file.commit();
  }
  if (result.generated.reason == StopReason::cancelled) {
    say_what_was_kept(session, "Ctrl-C, stopped while writing");
    return exit_status(ErrorCode::cancelled);
  }
  if (result.generated.reason == StopReason::context_full) {
    say(cat("kvtide: the context of ", count_text(session.context()),
            " tokens is full and the answer ends here; use a larger context (-c)"));
    return exit_status(ErrorCode::context_full);
  }
  return kExitFine;
}

}  // namespace kvtide
