// procedural_flags.cpp: the flags of a procedural memory.
#include <algorithm>
#include <string>
#include <type_traits>

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

// How the value of a flag becomes that of a field, by its type; numbers between `least` and `most`.
void assign(std::int64_t& value, const G& g, double least, double most) {
  const auto low = static_cast<std::int64_t>(least), high = static_cast<std::int64_t>(most);
  value = whole(g, "the value", low, std::min(high, kLargestCount));
}
void assign(int& value, const G& g, double least, double most) {
  value = static_cast<int>(whole(g, "the value", static_cast<int>(least), static_cast<int>(most)));
}
void assign(float& value, const G& g, double least, double most) {
  value = real(g, "the value", static_cast<float>(least), static_cast<float>(most));
}
void assign(std::string& value, const G& g, double, double) { value = g.value; }
template <class Choice>
requires std::is_enum_v<Choice>
void assign(Choice& value, const G& g, double, double) {
  const auto names = names_of(value);
  const auto found = std::find(names.begin(), names.end(), g.value);
  std::string list;
  for (const std::string_view name : names) list += cat(list.empty() ? "" : ", ", name);
  if (found == names.end()) refuse(cat(g.flag, ": must be one of ", list, ", not ", quoted(g.value)));
  value = static_cast<Choice>(found - names.begin());
}

// The setter of the flag for one field of the options. A number lies in the range that the list of fields has
// for it, or in a smaller one [kLeast, kMost]: zeros that stand for "left open" are no value for a flag.
template <auto kMember, std::int64_t kLeast = 0, std::int64_t kMost = 0>
void field(A& a, const G& g) {
  ProceduralOptions& options = given(a).chosen;
  auto& target = options.*kMember;
  visit(options, [&](const ProceduralField& known, auto& value) {
    if constexpr (std::is_same_v<decltype(value), decltype(target)>)
      if (&value == &target)
        assign(value, g, kLeast < kMost ? static_cast<double>(kLeast) : known.least,
               kLeast < kMost ? static_cast<double>(kMost) : known.most);
  });
}

bool on_or_off(const G& g) {
  if (g.value != "on" && g.value != "off")
    refuse(cat(g.flag, ": it must be one of on, off, not ", quoted(g.value)));
  return g.value == "on";
}

// "A-B", both included.
std::pair<std::int64_t, std::int64_t> range(const G& g, std::string_view what, std::int64_t high) {
  const std::size_t dash = g.value.find('-');
  const std::string low_text = g.value.substr(0, dash);
  const std::string high_text = dash == std::string::npos ? low_text : g.value.substr(dash + 1);
  const std::int64_t low = whole({g.flag, low_text}, what, 0, high, ", as in 0-9");
  return {low, whole({g.flag, high_text}, what, low, high, ", as in 0-9")};
}

using O = ProceduralOptions;

constexpr Flag kBudget[] = {
    {"", "--kv-budget", "BYTES", "64M: the KV memory never holds more; picks window, rows and levels",
     [](A& a, const G& g) { given(a).chosen.budget = bytes(g, "the budget", 1); }},
};
constexpr Flag kPreset[] = {
    {"", "--kv-sinks", "N", "rolling, procedural: first tokens that always stay [4]",
     [](A& a, const G& g) { a.memory.sinks = whole(g, "the number of sinks", 0, kLargestCount); }},
    {"", "--kv-window", "N", "rolling, procedural: newest tokens that stay [1024; 512]",
     [](A& a, const G& g) { a.memory.window = whole(g, "the window", 1, kLargestCount); }},
    {"", "--kv-proc", "on|off", "keep the past as summaries and outliers: texts of any length [off]",
     [](A& a, const G& g) { given(a).on = on_or_off(g); }},
    {"", "--kv-preset", "NAME", "minimal, balanced or faithful [balanced]",
     [](A& a, const G& g) {
       for (const auto& preset : kProceduralPresets)
         if (g.value == preset.name) return static_cast<void>(given(a).preset = g.value);
       refuse(cat(g.flag, ": there are minimal, balanced and faithful, not ", quoted(g.value)));
     }},
};
constexpr Flag kProcedural[] = {
    {"", "--kv-exact-first", "on|off",
     "procedural, a budget without -c: every row stays while the budget holds them all [on]",
     [](A& a, const G& g) { given(a).chosen.exact_first = on_or_off(g); }},
    {"", "--kv-block", "N", "procedural: tokens that are compressed at once [256]", field<&O::block>},
    {"", "--kv-r", "N", "procedural: summary rows per block and head [4]", field<&O::summaries>},
    {"--kv-salient", "--kv-outliers", "N", "procedural: exact rows per block, on average over all heads [60]",
     [](A& a, const G& g) { given(a).outliers = whole(g, "the number of outliers", 1, 65536); }},
    {"", "--kv-levels", "N", "procedural: 6 N + 1 blocks stay, old ones merge by twos; 0: all [3]",
     field<&O::levels>},
    {"", "--kv-row-type", "TYPE", "procedural: rows of a block: f16, q8_0 or q4_0 [q8_0; by the budget]",
     field<&O::row_type>},
    {"", "--kv-full-rows", "N", "procedural: most rows of the past that a copying head keeps; 0: all",
     field<&O::full_rows>},
    {"", "--kv-full-type", "TYPE",
     "procedural: rows of copying heads: f16, q8_0 or q4_0 [q8_0; by the budget]", field<&O::full_type>},
    {"", "--kv-summary", "KIND", "procedural: fit, cluster or positional [fit]", field<&O::summary>},
    {"", "--kv-score", "KIND",
     "procedural: which rows stay: mixed, novelty, vnorm, attention or repetition [mixed]", field<&O::score>},
    {"", "--kv-far", "RULE", "procedural: distances beyond the trained length: log or clamp [log]",
     field<&O::far>},
    {"", "--kv-proc-layers", "LO-HI", "procedural: compress these layers only; the others keep everything",
     [](A& a, const G& g) {
       const auto [low, high] = range(g, "the layers", 65535);
       given(a).chosen.first_layer = static_cast<int>(low);
       given(a).chosen.last_layer = static_cast<int>(high);
     }},
    {"", "--kv-level-max", "M", "procedural: most rows of a level, per layer and on average over its heads",
     field<&O::level_rows, 1, kLargestCount>},
    {"", "--kv-pin", "system|A-B", "procedural: positions A to B, or the system message, stay exact for good",
     [](A& a, const G& g) {
       given(a);
       if (g.value == "system") return static_cast<void>(a.memory.procedural.pin_system = true);
       const auto [low, high] = range(g, "the pinned positions", kLargestCount);
       a.memory.procedural.pins = with_pin(std::move(a.memory.procedural.pins), {low, high + 1});
     }},
    {"", "--kv-shed", "EPS", "procedural: outliers of the past whose score falls below go [0]",
     field<&O::shed_below, 0, 1'000'000'000>},
    {"", "--kv-decay", "X", "procedural: share that scores lose with every merge of blocks [0]",
     field<&O::decay>},
    {"", "--kv-retention", "X", "procedural: 1 keeps scores, whatever the decay; 0 lets them fade [0]",
     field<&O::retention>},
    {"", "--kv-adapt", "HOW", "procedural: off, drift or entropy: rows go where they are needed [off]",
     field<&O::adapt>},
    {"", "--kv-spill", "FILE", "procedural: rows of copying heads beyond --kv-full-rows go to this new file",
     field<&O::spill>},
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
           shadow.every = whole({g.flag, value}, "every=", 1, kLargestCount);
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

FlagGroup budget_flags() { return {Section::basics, kBudget}; }
FlagGroup preset_flags() { return {Section::memory, kPreset}; }
FlagGroup procedural_flags() { return {Section::compression, kProcedural}; }
FlagGroup head_table_flags() { return {Section::compression, kHeadTable}; }
FlagGroup shadow_flags() { return {Section::compression, kShadow}; }
FlagGroup seal_log_flags() { return {Section::output, kSealLog}; }

}  // namespace kvtide
