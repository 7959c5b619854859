// state_flags.cpp: the flags of kvtide state.
#include "cli/arguments/flag_groups.h"
#include "cli/arguments/flag_values.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

constexpr Flag kState[] = {
    {"", "--capacity", "N", "compact, expand: rows that fit from now on; export: rows of the arrays",
     [](A& a, const G& g) { a.state.capacity = whole(g, "the capacity", 1, kLargestCount); }},
    {"", "--length", "N", "truncate: positions that remain",
     [](A& a, const G& g) { a.state.length = whole(g, "the length", 0, kLargestCount); }},
    {"", "--nearest", "", "truncate: where that cannot be done, to the checkpoint before",
     [](A& a, const G&) { a.state.nearest = true; }},
    {"", "--layout", "NAME", "export: unified, split, per-layer or stacked [unified]",
     [](A& a, const G& g) {
       a.state.layout = one_of(g, "the layout", {"unified", "split", "per-layer", "stacked"});
     }},
    {"", "--dtype", "TYPE", "export: f32 or f16 [as stored; q8_0 as f32]",
     [](A& a, const G& g) {
       a.state.dtype = one_of(g, "the type", {"f32", "f16"});
     }},
    {"", "--like", "FILE", "import: a snapshot of the model that the rows belong to",
     [](A& a, const G& g) { a.state.like = path_of(g); }},
    {"", "--tokens", "FILE", "import: ids of the tokens that were read [as the arrays say]",
     [](A& a, const G& g) { a.state.tokens = path_of(g); }},
    {"", "--exact-only", "", "export: leave out what plain arrays cannot say, and tell it",
     [](A& a, const G&) { a.state.exact_only = true; }},
};

}  // namespace

FlagGroup state_flags() { return {Section::basics, kState}; }

}  // namespace kvtide
