#include "cli/arguments/procedural_options.h"

#include "base/refuse.h"
#include "kvtide/error.h"

namespace kvtide {

bool wants_procedural(const Arguments& a) {
  const ProceduralFlags& p = a.memory.procedural;
  if (p.on) return *p.on;
  return p.chosen.budget > 0 || !p.preset.empty();
}

ProceduralOptions procedural_options(const Arguments& a) {
  const ProceduralFlags& p = a.memory.procedural;
  ProceduralOptions o = p.chosen;
  if (o.budget > 0 && !p.preset.empty())
    refuse("--kv-budget and --kv-preset: the budget picks what a preset would; use one of them");
  for (const auto& preset : kProceduralPresets)
    if (p.preset == preset.name) {
      o.window = preset.window;
      if (o.block == 0) o.block = preset.block;
      o.rows = preset.rows;
    }
  if (a.memory.sinks) o.sinks = *a.memory.sinks;
  if (a.memory.window) o.window = *a.memory.window;
  // What is said of the rows is not changed by a budget.
  if (a.memory.key_type_given || a.memory.value_type_given) o.window_type = WindowType::as_written;
  if (p.outliers) o.rows = *p.outliers + (o.summaries < 0 ? ProceduralOptions::kSummaries : o.summaries);
  if (a.session.context > 0) o.budget_for = a.session.context;
  if (o.budget > 0 && o.budget_for == 0 && (o.first_layer > 0 || o.last_layer >= 0))
    refuse(
        "--kv-proc-layers: the other layers keep everything, so a budget needs to know how many tokens will "
        "be "
        "read: -c N");
  if (p.pin_system && !p.pins.empty()) refuse("--kv-pin: system or a range of positions, not both");
  if (p.pin_system && a.command != Command::chat && !(a.command == Command::run && a.chat))
    refuse("--kv-pin system: there is a system message only in chat and with run --chat; use --kv-pin A-B");
  o.pins = p.pins;
  return o;
}

}  // namespace kvtide
