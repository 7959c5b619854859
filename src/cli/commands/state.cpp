// kvtide state: snapshots without a model: what they hold, how two differ, and their transitions.
#include "cli/commands/state_files.h"

#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/commands/exit_status.h"
#include "cli/output/file_kind.h"
#include "cli/output/memory_event.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

Snapshot load(const std::string& path) {
  check_is_snapshot(path);
  PosixFiles files;
  return load_snapshot(files, path);
}

Transition transition_of(const StateRequest& request) {
  if (request.action == "truncate") return Truncate{*request.length, request.nearest};
  if (request.action == "compact") return Compact{*request.capacity};
  return Expand{*request.capacity};
}

int change(const Arguments& arguments) {
  const std::string& from = arguments.state.files[0];
  const std::string& to = arguments.out.empty() ? from : arguments.out;
  Snapshot snapshot = load(from);
  check_snapshot_place(to);
  const TransitionPlan plan = snapshot.state.plan(transition_of(arguments.state));
  if (!plan) throw Error(ErrorCode::invalid_argument, cat(from, ": ", plan.refusal()));
  const TransitionRecord record = snapshot.state.apply(plan);
  if (snapshot.state.position() < record.position) {
    snapshot.extras.tokens.resize(static_cast<std::size_t>(snapshot.state.position()));
    snapshot.extras.logits.clear();  // they belonged to the token that is gone
  }
  PosixFiles files;
  save_snapshot(files, to, snapshot.state, snapshot.extras);
  say(cat(to, ": ", event_text(event_of(record)),
          record.read_again > 0 ? cat("; ", count_text(record.read_again), " tokens up to position ",
                                      count_text(*arguments.state.length), " are to be read again")
                                : ""));
  return kExitFine;
}

}  // namespace

int state_command(const Arguments& arguments) {
  const StateRequest& request = arguments.state;
  if (request.action == "info") {
    print_state_info(load(request.files[0]), request.files[0], arguments.json);
    return kExitFine;
  }
  if (request.action == "diff") {
    Snapshot first = load(request.files[0]), second = load(request.files[1]);
    return print_state_diff(first, second, arguments) ? kExitFine : kExitDifferent;
  }
  if (request.action == "export") {
    Snapshot snapshot = load(request.files[0]);
    export_state(snapshot, arguments);
    return kExitFine;
  }
  if (request.action == "import") {
    import_state(load(request.like), arguments);
    return kExitFine;
  }
  return change(arguments);
}

}  // namespace kvtide
