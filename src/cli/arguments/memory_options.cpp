#include "cli/arguments/memory_options.h"

#include <algorithm>

#include "base/refuse.h"
#include "base/text.h"
#include "cli/arguments/procedural_options.h"
#include "kvtide/error.h"

namespace kvtide {

namespace {

constexpr std::int64_t kSinks = 4, kWindow = 1024;

}  // namespace

void check_memory_flags(const Arguments& a) {
  const MemoryFlags& m = a.memory;
  const Strategy& s = m.strategy;
  const bool procedural = wants_procedural(a);
  if (m.overflow != Overflow::rolling && !procedural && !m.procedural.on && (m.sinks || m.window))
    refuse(cat(m.window ? "--kv-window" : "--kv-sinks",
               ": has a meaning only with --overflow rolling or a procedural memory (--kv-proc on)"));
  if (m.procedural.any && !procedural && !m.procedural.on)
    refuse("--kv-...: flags of a procedural memory need --kv-proc on, --kv-budget or --kv-preset");
  // A snapshot may hold such a memory: known when it is loaded.
  if (!m.procedural.log.empty() && !procedural && m.load_state.empty())
    refuse(
        "--kv-log: a procedural memory is what it tells of; it needs --kv-proc on, --kv-budget or "
        "--kv-preset");
  if (procedural && m.overflow != Overflow::stop)
    refuse(
        cat("--overflow ", overflow_name(m.overflow), ": a procedural memory never fills up; leave it out"));
  if (procedural) procedural_options(a);
  if (m.overflow != Overflow::refill && m.keep_prompt)
    refuse("--keep-prompt: has a meaning only with --overflow refill");
  if (m.overflow == Overflow::refill && a.command != Command::run && a.command != Command::chat)
    refuse(cat("--overflow refill: reads text twice, which ", command_info(a.command).name,
               " does not measure; use stop or rolling"));
  if (s.attend && a.session.auto_attention)
    refuse("--strategy: attend= and --attention-size auto both say how much is seen; use one of them");
  if (m.save_every > 0 && m.save_state.empty()) refuse("--save-every: needs --save-state FILE");
  if (s.empty()) return;
  if (procedural) refuse("--strategy: a procedural memory keeps its own size; leave it out");
  if (m.overflow == Overflow::rolling)
    refuse("--strategy: a rolling memory keeps its size; use --overflow stop or refill");
  if (s.prefill && a.session.context != 0)
    refuse("--strategy: prefill= and -c both say how much fits while the prompt is read; use one of them");
}

SessionOptions memory_options(const Arguments& arguments, std::int64_t context, std::int64_t trained) {
  const MemoryFlags& m = arguments.memory;
  SessionOptions options = arguments.session;
  options.context = m.strategy.prefill.value_or(context);
  if (wants_procedural(arguments)) {
    options.procedural = procedural_options(arguments);
    return options;
  }
  if (m.overflow != Overflow::rolling) return options;
  const std::int64_t fits = context > 0 ? context : trained;
  Rolling rolling;
  rolling.sinks = m.sinks.value_or(std::min(kSinks, fits - 1));
  rolling.window = m.window.value_or(std::min(kWindow, fits - rolling.sinks));
  if (rolling.window < 1 || (context > 0 && rolling.sinks + rolling.window > context))
    refuse(cat("--overflow rolling: ", rolling.sinks, " sinks (--kv-sinks) and a window of ",
               std::max<std::int64_t>(rolling.window, 1), " (--kv-window) do not fit a context of ", fits,
               " (-c)"));
  if (context == 0) options.context = rolling.sinks + rolling.window;
  options.rolling = rolling;
  return options;
}

}  // namespace kvtide
