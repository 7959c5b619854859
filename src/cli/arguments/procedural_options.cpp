#include "cli/arguments/procedural_options.h"

#include "base/refuse.h"
#include "kvtide/error.h"

namespace kvtide {

bool wants_procedural(const Arguments& a) {
  const ProceduralFlags& p = a.memory.procedural;
  if (p.on) return *p.on;
  return p.budget || !p.preset.empty();
}

ProceduralOptions procedural_options(const Arguments& a) {
  const ProceduralFlags& p = a.memory.procedural;
  ProceduralOptions o = p.chosen;
  if (p.budget && !p.preset.empty())
    refuse("--kv-budget and --kv-preset: the budget picks what a preset would; use one of them");
  o.budget = p.budget.value_or(0);
  for (const auto& preset : kProceduralPresets)
    if (p.preset == preset.name) {
      o.window = preset.window;
      o.block = preset.block;
      o.rows = preset.rows;
    }
  if (a.memory.sinks) o.sinks = *a.memory.sinks;
  if (a.memory.window) o.window = *a.memory.window;
  if (p.block) o.block = *p.block;
  if (p.summaries) o.summaries = *p.summaries;
  if (p.salient) o.rows = *p.salient + o.summaries;
  if (p.levels) o.levels = *p.levels;
  if (p.full_rows) o.full_rows = *p.full_rows;
  if (a.session.context > 0) o.budget_for = a.session.context;
  if (o.budget > 0 && o.budget_for == 0 && (o.first_layer > 0 || o.last_layer >= 0))
    refuse(
        "--kv-proc-layers: the other layers keep everything, so a budget needs to know how many tokens will "
        "be "
        "read: -c N");
  if (p.pin_system && !p.pins.empty()) refuse("--kv-pin: system or a range of positions, not both");
  return o;
}

}  // namespace kvtide
