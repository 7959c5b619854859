// kvtide chat: a conversation over several turns. The KV memory of earlier turns is kept: a turn reads only
// what is new.
#include <string>

#include "base/nearest.h"
#include "base/text.h"
#include "cli/commands/cache_folder.h"
#include "cli/commands/commands.h"
#include "cli/commands/conversation.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/line_editor.h"
#include "cli/output/file_kind.h"
#include "cli/output/output_file.h"
#include "cli/output/report.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

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
      check_snapshot_place(path);
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

constexpr std::string_view kCommandsHelp =
    "/undo        takes the last message and its answer back\n"
    "/edit TEXT   asks TEXT instead of the last message\n"
    "/clear       forgets the conversation\n"
    "/save FILE   keeps the memory of the talk\n"
    "/load FILE   goes on from one that was kept\n"
    "/help        shows this\n"
    "/bye         ends the conversation, as /exit and Ctrl-D do\n"
    "Ctrl-C cuts an answer short, or gives up a line that was begun. Lines that are pasted at once are one "
    "message.";

// True when the line was a command; `done` when it was the last.
bool obey(const std::string& line, Conversation& conversation, bool& done) {
  if (!line.starts_with('/') || line.find('\n') != line.npos) return false;
  static constexpr std::string_view kKnown[] = {"/bye",   "/exit", "/quit", "/undo", "/edit",
                                                "/clear", "/help", "/save", "/load"};
  if (obey_files(line, conversation)) return true;
  if (line == "/bye" || line == "/exit" || line == "/quit") {
    done = true;
  } else if (line == "/clear") {
    conversation.clear();
    say("the conversation starts anew");
  } else if (line == "/undo") {
    conversation.undo();
  } else if (line == "/edit" || line.starts_with("/edit ")) {
    const std::size_t first = line.find_first_not_of(" \t", 5);
    if (first == line.npos)
      say("/edit: say what to ask instead of the last message");
    else
      conversation.edit(line.substr(first));
  } else if (line == "/help" || line == "/?") {
    say(kCommandsHelp);
  } else {
    const std::string_view meant = nearest(line, kKnown);
    say(cat("there is no ", quoted(line), meant.empty() ? "; /help lists what there is" : "; did you mean ",
            meant, meant.empty() ? "" : "?"));
  }
  return true;
}

}  // namespace

int chat_command(const Arguments& arguments) {
  if (!arguments.report.empty()) OutputFile::check(arguments.report);
  if (!arguments.memory.save_state.empty()) check_snapshot_place(arguments.memory.save_state);
  OpenModel open(arguments, arguments.session.context);
  Conversation conversation(arguments, open);
  say(cat(open.headline(arguments.verbose), stdin_is_terminal() ? "; /help lists commands" : ""));
  say_if_it_cannot_chat(open.model);
  if (arguments.verbose) say_what_the_budget_picked(open.session);

  int status = kExitFine;
  try {
    const std::string cache = cache_folder(arguments);
    LineEditor lines(cache.empty() ? "" : cache + "/chat_history");
    for (bool done = false; !done;) {
      const auto line = lines.next();
      if (!line) break;
      if (line->find_first_not_of(" \t\n") == line->npos || obey(*line, conversation, done)) continue;
      conversation.turn(*line);
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::cancelled) throw;
    say(cat(stdin_is_terminal() ? "\n" : "", "kvtide: Ctrl-C, ", error.message()));
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
