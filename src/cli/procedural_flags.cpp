#include "cli/procedural_flags.h"

#include <algorithm>

#include "base/text.h"
#include "cli/cache_folder.h"
#include "cli/flag_values.h"
#include "cli/heads_file.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "eval/head_table.h"
#include "kvtide/error.h"
#include "model/identity.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

constexpr unsigned kSessions = in(Command::run) | in(Command::chat) | in(Command::ppl) | in(Command::bench) |
                               in(Command::logits) | in(Command::copytest) | in(Command::recall);
constexpr unsigned kProcedural = kSessions | in(Command::plan);
constexpr std::int64_t kMany = std::int64_t{1} << 31;

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::invalid_argument, why); }

ProceduralFlags& given(A& a) {
  a.memory.procedural.any = true;
  return a.memory.procedural;
}

template <class T>
T choice(const G& g, std::string_view what, std::initializer_list<std::pair<std::string_view, T>> values) {
  std::string list;
  for (const auto& [name, value] : values) {
    if (g.value == name) return value;
    list += cat(list.empty() ? "" : ", ", name);
  }
  refuse(cat(g.flag, ": ", what, " must be one of ", list, ", not ", quoted(g.value)));
}

constexpr Flag kFlags[] = {
    {"", "--kv-proc", "on|off", "keep the past as summaries and outliers: texts of any length [off]",
     kProcedural,
     [](A& a, const G& g) {
       given(a).on = choice<bool>(g, "it", {{"on", true}, {"off", false}});
     }},
    {"", "--kv-budget", "BYTES", "64M: the KV memory never holds more; picks window, rows and levels",
     kProcedural, [](A& a, const G& g) { given(a).budget = bytes(g, "the budget", 1 << 20); }},
    {"", "--kv-preset", "NAME", "minimal, balanced or faithful [balanced]", kProcedural,
     [](A& a, const G& g) {
       for (const auto& preset : kProceduralPresets)
         if (g.value == preset.name) return static_cast<void>(given(a).preset = g.value);
       refuse(cat(g.flag, ": there are minimal, balanced and faithful, not ", quoted(g.value)));
     }},
    {"", "--kv-block", "N", "procedural: tokens that are compressed at once [256]", kProcedural,
     [](A& a, const G& g) { given(a).block = whole(g, "the block", 16, 65536); }},
    {"", "--kv-r", "N", "procedural: summary rows per block and head [4]", kProcedural,
     [](A& a, const G& g) { given(a).summaries = whole(g, "the number of summaries", 0, 65536); }},
    {"", "--kv-salient", "N", "procedural: exact rows per block, on average over all heads [60]", kProcedural,
     [](A& a, const G& g) { given(a).salient = whole(g, "the number of exact rows", 1, 65536); }},
    {"", "--kv-levels", "N", "procedural: how often old blocks are merged; 0: never [3]", kProcedural,
     [](A& a, const G& g) { given(a).levels = static_cast<int>(whole(g, "the number of levels", 0, 8)); }},
    {"", "--kv-full-rows", "N", "procedural: newest rows that copying heads keep; 0: all", kProcedural,
     [](A& a, const G& g) { given(a).full_rows = whole(g, "the number of rows", 0, kMany); }},
    {"", "--kv-heads", "TABLE", "procedural: auto, even, or a file that kvtide heads wrote [auto]", kSessions,
     [](A& a, const G& g) { given(a).heads = g.value; }},
    {"", "--kv-summary", "KIND", "procedural: fit, cluster or positional [fit]", kProcedural,
     [](A& a, const G& g) {
       given(a).chosen.summary = choice<Summary>(
           g, "summaries",
           {{"fit", Summary::fit}, {"cluster", Summary::cluster}, {"positional", Summary::positional}});
     }},
    {"", "--kv-score", "KIND", "procedural: which rows stay: mixed, novelty, vnorm or attention [mixed]",
     kProcedural,
     [](A& a, const G& g) {
       given(a).chosen.score = choice<RowScore>(g, "the score",
                                                {{"mixed", RowScore::mixed},
                                                 {"novelty", RowScore::novelty},
                                                 {"vnorm", RowScore::value_norm},
                                                 {"attention", RowScore::attention}});
     }},
    {"", "--kv-far", "RULE", "procedural: distances beyond the trained length: log or clamp [log]",
     kProcedural,
     [](A& a, const G& g) {
       given(a).chosen.far =
           choice<FarRule>(g, "the rule", {{"log", FarRule::log}, {"clamp", FarRule::clamp}});
     }},
};

}  // namespace

std::span<const Flag> procedural_flags() { return kFlags; }

bool wants_procedural(const Arguments& a) {
  const ProceduralFlags& p = a.memory.procedural;
  if (p.on) return *p.on;
  return a.memory.overflow == Overflow::procedural || p.budget || !p.preset.empty();
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
  return o;
}

HeadTable choose_heads(const Arguments& a, const Model& model) {
  const std::string& wanted = a.memory.procedural.heads;
  if (wanted == "even") return {};
  if (wanted != "auto") return read_heads(wanted);
  const std::string cache = cache_folder(a);
  const std::string hash = model_identity(model, cache).at("model");
  if (const HeadTable* known = shipped_heads(hash)) return *known;
  const std::string remembered = cache.empty() ? "" : cat(cache, "/heads-", hash, ".tsv");
  try {
    if (!remembered.empty()) return read_heads(remembered);
  } catch (const Error&) {
    // Not there, or not what it should be: it is measured again.
  }
  say("measuring which heads copy from the past (once per model; --kv-heads even does without)");
  HeadTable table;
  try {
    Progress progress("measuring heads");
    table = measure_heads(model, {.threads = a.session.threads, .progress = [&](double share) {
                                    progress.update(share);
                                    return !interrupted();
                                  }});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    say(cat("all heads are treated alike: ", error.what()));
    return {};
  }
  try {
    if (!remembered.empty()) write_heads(remembered, table);
  } catch (const Error&) {
    // A cache only saves time.
  }
  return table;
}

}  // namespace kvtide
