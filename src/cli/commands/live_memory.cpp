#include "cli/commands/live_memory.h"

#include <algorithm>

#include "base/stopwatch.h"
#include "base/text.h"
#include "cli/commands/cache_folder.h"
#include "cli/output/file_kind.h"
#include "cli/output/kv_cost.h"
#include "cli/output/output_file.h"
#include "cli/output/progress.h"
#include "cli/output/terminal.h"
#include "engine/overflow.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

// A file says what kind of memory it holds; flags that say something else were meant for another one.
void check_kind(const MemoryFlags& flags, const SessionOptions& wanted, const Session& loaded,
                const std::string& path) {
  const auto refuse = [&](std::string_view flag, std::string_view what) {
    throw Error(ErrorCode::invalid_argument,
                cat(path, ": ", flag, " asks for another memory than the snapshot holds (", what,
                    "); leave the flag out"));
  };
  const SessionOptions& has = loaded.options();
  if (flags.key_type_given && wanted.key_type != has.key_type) refuse("-ctk", "another type of keys");
  if (flags.value_type_given && wanted.value_type != has.value_type) refuse("-ctv", "another type of values");
  if (flags.overflow == Overflow::rolling && wanted.rolling != has.rolling)
    refuse("--overflow rolling", has.rolling ? "other sinks or another window" : "everything that was read");
  if (wanted.procedural && !has.procedural) refuse("--kv-proc", "no summaries");
  if (wanted.procedural) {
    // The budget of the flags holds, or else that of the file.
    ProceduralOptions like = *wanted.procedural;
    like.budget = has.procedural->budget;
    like.budget_for = has.procedural->budget_for;
    if (has.procedural != like) refuse("--kv-proc", "blocks that were made with other choices");
  }
  if (flags.procedural.on == false && has.procedural) refuse("--kv-proc off", "a past that is summarised");
  if (!flags.procedural.log.empty() && !has.procedural) refuse("--kv-log", "no summaries to tell of");
  if (flags.overflow == Overflow::refill && has.rolling) refuse("--overflow refill", "a rolling window");
}

}  // namespace

LiveMemory::LiveMemory(const Arguments& arguments, Session& session)
    : arguments_(arguments), session_(session), log_(arguments.memory.procedural.log) {}

void LiveMemory::load() {
  const std::string& path = arguments_.memory.load_state;
  if (path.empty()) return;
  const SessionOptions wanted = session_.options();
  load(path);
  check_kind(arguments_.memory, wanted, session_, path);
}

void LiveMemory::load(const std::string& path) {
  check_is_snapshot(path);
  const Stopwatch watch;
  note_attention();
  const auto wanted = arguments_.session.auto_attention ? session_.options().auto_attention : std::nullopt;
  session_.load(path, cache_folder(arguments_));
  if (arguments_.session.attention_size) session_.apply(SetAttention{arguments_.session.attention_size});
  // One that adapts itself already goes on with what it has measured.
  if (wanted && session_.options().auto_attention != wanted) session_.apply(SetAttention{{}, wanted});
  attention_noted_ = session_.attention_changes().size();
  loaded_ = session_.position();
  forgotten_before_ = session_.position() - session_.rows();
  saved_at_ = session_.position();
  pinned_ = 0;
  events_.push_back({"load",
                     session_.position(),
                     {{"tokens", loaded_}, {"kept", session_.rows()}, {"bytes", session_.memory().kv}},
                     watch.ms()});
}

void LiveMemory::check_prompt(std::int64_t tokens) const {
  const std::int64_t rows = session_.rows() + tokens;
  const MemoryFlags& flags = arguments_.memory;
  if (!flags.save_state.empty())
    OutputFile::check_room(
        flags.save_state, expected_kv_bytes(session_, tokens), "the snapshot",
        "nothing was read; give it another place, or less to keep (--kv-budget 64M, -ctk q8_0)");
  if (flags.keep_prompt && rows > session_.context() - 2)
    throw Error(
        ErrorCode::context_full,
        cat("--keep-prompt: a prompt of ", count_text(rows), " tokens leaves no room in a context of ",
            count_text(session_.context()), "; use -c ", rows + 2, " or more"));
  if (flags.strategy.compact && rows > *flags.strategy.compact)
    throw Error(ErrorCode::invalid_argument,
                cat("--strategy: cannot compact to ", *flags.strategy.compact, ": the prompt has ",
                    count_text(rows), " tokens; use compact=", rows, " or more"));
}

void LiveMemory::prompt_read() {
  const Strategy& strategy = arguments_.memory.strategy;
  if (arguments_.memory.keep_prompt && pinned_ == 0) pinned_ = session_.position();
  const std::size_t before = events_.size();
  if (strategy.compact && session_.context() > *strategy.compact) transition(Compact{*strategy.compact});
  if (strategy.attend && session_.attention_size() != strategy.attend)
    transition(SetAttention{strategy.attend});
  // Before the answer begins; later ones would stand in the middle of it and wait for the report.
  for (std::size_t i = before; i < events_.size(); ++i) say(event_text(events_[i]));
}

void LiveMemory::transition(const Transition& change) {
  MemoryEvent event = event_of(session_.apply(change));
  if (const auto* attention = std::get_if<SetAttention>(&change); attention != nullptr && attention->size)
    event.numbers.insert(event.numbers.begin(), {"size", *attention->size});
  events_.push_back(std::move(event));
}

void LiveMemory::note_attention() {
  const auto changes = session_.attention_changes();
  attention_noted_ = std::min(attention_noted_, changes.size());  // some may have been taken back
  for (; attention_noted_ < changes.size(); ++attention_noted_)
    events_.push_back(event_of(changes[attention_noted_]));
}

bool LiveMemory::make_room() {
  note_attention();
  const Strategy& strategy = arguments_.memory.strategy;
  while (expanded_ < strategy.expand.size()) {
    const std::int64_t capacity = strategy.expand[expanded_++];
    if (capacity <= session_.context()) continue;
    transition(Expand{capacity});
    return true;
  }
  if (!refills()) return false;
  // A text that began with the start token begins with it again: models lean on it.
  const auto bos = session_.model().tokenizer().bos();
  const bool begins = bos && !session_.tokens().empty() && session_.tokens().front() == *bos;
  const std::int64_t pinned = std::max<std::int64_t>(pinned_, begins ? 1 : 0);
  Progress progress("refilling", session_);
  const std::int64_t total = pinned + (session_.context() - pinned) / 2;
  // Not stopped by Ctrl-C: half a refill would be neither the old memory nor the new one.
  const Refill done = refill(session_, pinned, [&](std::int64_t read) {
    progress.update(read, total);
    return true;
  });
  ++refill_count_;
  saved_at_ = std::min(saved_at_, session_.position());
  events_.push_back(
      {"refill", done.position, {{"dropped", done.dropped}, {"kept", done.kept}}, done.milliseconds});
  return true;
}

void LiveMemory::pause() {
  note_attention();
  log_.note(session_);
  const std::int64_t every = arguments_.memory.save_every;
  if (every == 0 || session_.position() - saved_at_ < every) return;
  const Stopwatch watch;
  try {
    save(arguments_.memory.save_state);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::io) throw;
    if (!complained_) say(cat("warning: ", error.message(), "; going on without this snapshot"));
    complained_ = true;
    saved_at_ = session_.position();
  }
  saving_ += watch.ms() * 1e-3;
}

void LiveMemory::save() {
  // An empty memory must not take the place of a snapshot that somebody may want.
  if (!arguments_.memory.save_state.empty() && session_.position() > 0) save(arguments_.memory.save_state);
}

void LiveMemory::save(const std::string& path) {
  note_attention();
  const Stopwatch watch;
  session_.save(path, cache_folder(arguments_));
  saved_at_ = session_.position();
  events_.push_back(
      {"save",
       session_.position(),
       {{"tokens", session_.position()}, {"kept", session_.rows()}, {"bytes", session_.memory().kv}},
       watch.ms()});
}

void LiveMemory::forget() {
  note_attention();
  session_.clear();
  log_.forget();
  attention_noted_ = 0;
  pinned_ = 0;
  forgotten_before_ = 0;
  saved_at_ = 0;
}

std::vector<MemoryEvent> LiveMemory::events() {
  note_attention();
  log_.note(session_);
  std::vector<MemoryEvent> all = events_;
  if (const auto counts = session_.procedural_counts(); counts && counts->blocks_sealed > 0)
    all.push_back(procedural_event(session_));
  const auto& rolling = session_.options().rolling;
  const std::int64_t forgotten = session_.position() - session_.rows() - forgotten_before_;
  if (rolling && forgotten > 0)
    all.push_back({"rolling",
                   session_.position(),
                   {{"dropped", forgotten},
                    {"kept", session_.rows()},
                    {"sinks", rolling->sinks},
                    {"window", rolling->window}},
                   0.0});
  return all;
}

}  // namespace kvtide
