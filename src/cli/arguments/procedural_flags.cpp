// procedural_flags.cpp: the flags of a procedural memory.
#include <algorithm>

#include "base/refuse.h"
#include "base/text.h"
#include "cli/arguments/flag_groups.h"
#include "cli/arguments/flag_values.h"
#include "kvtide/error.h"
#include "state/spec/procedural_spec.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

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

// "A-B", both included.
std::pair<std::int64_t, std::int64_t> range(const G& g, std::string_view what, std::int64_t high) {
  const std::size_t dash = g.value.find('-');
  const std::string low_text = g.value.substr(0, dash);
  const std::string high_text = dash == std::string::npos ? low_text : g.value.substr(dash + 1);
  const std::int64_t low = whole({g.flag, low_text}, what, 0, high, ", as in 0-9");
  return {low, whole({g.flag, high_text}, what, low, high, ", as in 0-9")};
}

constexpr Flag kProcedural[] = {
    {"", "--kv-sinks", "N", "rolling, procedural: first tokens that always stay [4]",
     [](A& a, const G& g) { a.memory.sinks = whole(g, "the number of sinks", 0, kMany); }},
    {"", "--kv-window", "N", "rolling, procedural: newest tokens that stay [1024; 512]",
     [](A& a, const G& g) { a.memory.window = whole(g, "the window", 1, kMany); }},
    {"", "--kv-proc", "on|off", "keep the past as summaries and outliers: texts of any length [off]",
     [](A& a, const G& g) {
       given(a).on = choice<bool>(g, "it", {{"on", true}, {"off", false}});
     }},
    {"", "--kv-budget", "BYTES", "64M: the KV memory never holds more; picks window, rows and levels",
     [](A& a, const G& g) { given(a).budget = bytes(g, "the budget", 1 << 20); }},
    {"", "--kv-preset", "NAME", "minimal, balanced or faithful [balanced]",
     [](A& a, const G& g) {
       for (const auto& preset : kProceduralPresets)
         if (g.value == preset.name) return static_cast<void>(given(a).preset = g.value);
       refuse(cat(g.flag, ": there are minimal, balanced and faithful, not ", quoted(g.value)));
     }},
    {"", "--kv-block", "N", "procedural: tokens that are compressed at once [256]",
     [](A& a, const G& g) { given(a).block = whole(g, "the block", 16, 65536); }},
    {"", "--kv-r", "N", "procedural: summary rows per block and head [4]",
     [](A& a, const G& g) { given(a).summaries = whole(g, "the number of summaries", 0, 65536); }},
    {"", "--kv-salient", "N", "procedural: exact rows per block, on average over all heads [60]",
     [](A& a, const G& g) { given(a).salient = whole(g, "the number of exact rows", 1, 65536); }},
    {"", "--kv-levels", "N", "procedural: 6 N + 1 blocks stay, old ones merge by twos; 0: all [3]",
     [](A& a, const G& g) { given(a).levels = static_cast<int>(whole(g, "the number of levels", 0, 8)); }},
    {"", "--kv-full-rows", "N", "procedural: newest rows that copying heads keep; 0: all",
     [](A& a, const G& g) { given(a).full_rows = whole(g, "the number of rows", 0, kMany); }},
    {"", "--kv-full-type", "TYPE",
     "procedural: rows of copying heads: f16, q8_0 or q4_0 [q8_0; by the budget]",
     [](A& a, const G& g) {
       given(a).chosen.full_type = choice<FullType>(
           g, "the type", {{"f16", FullType::f16}, {"q8_0", FullType::q8_0}, {"q4_0", FullType::q4_0}});
     }},
    {"", "--kv-summary", "KIND", "procedural: fit, cluster or positional [fit]",
     [](A& a, const G& g) {
       given(a).chosen.summary = choice<Summary>(
           g, "summaries",
           {{"fit", Summary::fit}, {"cluster", Summary::cluster}, {"positional", Summary::positional}});
     }},
    {"", "--kv-score", "KIND", "procedural: which rows stay: mixed, novelty, vnorm or attention [mixed]",
     [](A& a, const G& g) {
       given(a).chosen.score = choice<RowScore>(g, "the score",
                                                {{"mixed", RowScore::mixed},
                                                 {"novelty", RowScore::novelty},
                                                 {"vnorm", RowScore::value_norm},
                                                 {"attention", RowScore::attention}});
     }},
    {"", "--kv-far", "RULE", "procedural: distances beyond the trained length: log or clamp [log]",
     [](A& a, const G& g) {
       given(a).chosen.far =
           choice<FarRule>(g, "the rule", {{"log", FarRule::log}, {"clamp", FarRule::clamp}});
     }},
    {"", "--kv-proc-layers", "LO-HI", "procedural: compress these layers only; the others keep everything",
     [](A& a, const G& g) {
       const auto [low, high] = range(g, "the layers", 65535);
       given(a).chosen.first_layer = static_cast<int>(low);
       given(a).chosen.last_layer = static_cast<int>(high);
     }},
    {"", "--kv-level-max", "M", "procedural: most rows of a level, per layer and on average over its heads",
     [](A& a, const G& g) { given(a).chosen.level_rows = whole(g, "the number of rows", 1, kMany); }},
    {"", "--kv-pin", "system|A-B", "procedural: positions A to B, or the system message, stay exact for good",
     [](A& a, const G& g) {
       given(a);
       if (g.value == "system") return static_cast<void>(a.memory.procedural.pin_system = true);
       const auto [low, high] = range(g, "the pinned positions", kMany);
       a.memory.procedural.pins = with_pin(std::move(a.memory.procedural.pins), {low, high + 1});
     }},
    {"", "--kv-shed", "EPS", "procedural: exact rows of the past whose score falls below go [0]",
     [](A& a, const G& g) { given(a).chosen.shed_below = real(g, "the score", 0.0f, 1e9f); }},
    {"", "--kv-decay", "X", "procedural: share that scores lose with every merge of blocks [0]",
     [](A& a, const G& g) { given(a).chosen.decay = real(g, "the share", 0.0f, 1.0f); }},
    {"", "--kv-retention", "X", "procedural: 1 keeps scores, whatever the decay; 0 lets them fade [0]",
     [](A& a, const G& g) { given(a).chosen.retention = real(g, "the retention", 0.0f, 1.0f); }},
    {"", "--kv-adapt", "HOW", "procedural: off, drift or entropy: rows go where they are needed [off]",
     [](A& a, const G& g) {
       given(a).chosen.adapt = choice<Adapt>(
           g, "it", {{"off", Adapt::off}, {"drift", Adapt::drift}, {"entropy", Adapt::entropy}});
     }},
    {"", "--kv-spill", "FILE", "procedural: rows of copying heads beyond --kv-full-rows go to this new file",
     [](A& a, const G& g) { given(a).chosen.spill = g.value; }},
};
constexpr Flag kHeadTable[] = {
    {"", "--kv-heads", "TABLE", "procedural: auto, even, or a file that kvtide heads wrote [auto]",
     [](A& a, const G& g) { given(a).heads = g.value; }},
};
constexpr Flag kShadow[] = {
    {"", "--kv-shadow", "every=N[,layers=LO-HI]",
     "procedural: measure drift against attention over everything",
     [](A& a, const G& g) {
       ShadowOptions shadow;
       std::string_view rest = g.value;
       while (!rest.empty()) {
         const std::string_view part = rest.substr(0, rest.find(','));
         rest.remove_prefix(std::min(rest.size(), part.size() + 1));
         const std::string value(part.substr(std::min(part.size(), part.find('=') + 1)));
         if (part.starts_with("every=")) {
           shadow.every = whole({g.flag, value}, "every=", 1, kMany);
         } else if (part.starts_with("layers=")) {
           const auto [low, high] = range({g.flag, value}, "layers=", 65535);
           shadow.first_layer = static_cast<int>(low);
           shadow.last_layer = static_cast<int>(high);
         } else {
           refuse(cat(g.flag, ": every=N and layers=LO-HI can be set, not ", quoted(part)));
         }
       }
       given(a);
       a.session.shadow = shadow;
     }},
};
constexpr Flag kSealLog[] = {
    {"", "--kv-log", "FILE", "procedural: a line of JSON for every block that is compressed or merged",
     [](A& a, const G& g) { a.memory.procedural.log = g.value; }},
};

}  // namespace

FlagGroup procedural_flags() { return kProcedural; }
FlagGroup head_table_flags() { return kHeadTable; }
FlagGroup shadow_flags() { return kShadow; }
FlagGroup seal_log_flags() { return kSealLog; }

}  // namespace kvtide
