// plan_flags.cpp: the flags of kvtide plan: the shape of a model that is not here.
#include "cli/arguments/flag_groups.h"
#include "cli/arguments/flag_values.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

constexpr Flag kPlan[] = {
    {"-c", "--ctx", "N", "tokens of the text [100000]",
     [](A& a, const G& g) { a.lengths = {whole(g, "the length", 64, kLargestCount)}; }},
    {"", "--budget", "BYTES", "the same as --kv-budget",
     [](A& a, const G& g) {
       a.memory.procedural.any = true;
       a.memory.procedural.chosen.budget = bytes(g, "the budget", 1);
     }},
    {"", "--ladder", "", "what each of many budgets buys, from a fortieth of the full cache to all of it",
     [](A& a, const G&) { a.plan.ladder = true; }},
    {"", "--like", "NAME", "the shape of a known model: mistral-7b, qwen3.5-4b, gpt-oss-20b, lfm2-1.2b, ...",
     [](A& a, const G& g) { a.plan.like = g.value; }},
    {"", "--layers", "N", "layers of a model that is not here",
     [](A& a, const G& g) { a.plan.layers = whole(g, "the number of layers", 1, 1024); }},
    {"", "--heads", "N", "query heads [as many as KV heads]",
     [](A& a, const G& g) { a.plan.heads = whole(g, "the number of query heads", 1, 4096); }},
    {"", "--kv-heads", "N|TABLE",
     "KV heads; or the head table: even, or a file that kvtide heads wrote [auto]",
     [](A& a, const G& g) {
       if (g.value.empty() || g.value[0] < '0' || g.value[0] > '9')
         a.memory.procedural.heads = g.value;
       else
         a.plan.kv_heads = whole(g, "the number of KV heads", 1, 4096);
     }},
    {"", "--head-dim", "N", "elements of a head",
     [](A& a, const G& g) { a.plan.head_dim = whole(g, "the size of a head", 1, 512); }},
    {"", "--width", "N", "of the residual stream [query heads x head size]",
     [](A& a, const G& g) { a.plan.width = whole(g, "the width", 1, 1 << 20); }},
    {"", "--hidden", "N", "of the feed-forward [3.5 times the width]",
     [](A& a, const G& g) { a.plan.hidden = whole(g, "the width of the feed-forward", 1, 1 << 20); }},
    {"", "--vocab", "N", "tokens of the vocabulary [32768]",
     [](A& a, const G& g) { a.plan.vocab = whole(g, "the size of the vocabulary", 1, 1 << 24); }},
    {"", "--trained", "N", "tokens that the model was trained for [--ctx]",
     [](A& a, const G& g) { a.plan.trained = whole(g, "the trained length", 64, kLargestCount); }},
    {"", "--full-heads", "N", "heads that keep every row [a share like SmolLM2's]",
     [](A& a, const G& g) { a.plan.full_heads = whole(g, "the number of heads", 0, 1 << 20); }},
    {"", "--bits", "X", "bits per weight, for the predicted speed [4.5]",
     [](A& a, const G& g) {
       a.plan.bits = static_cast<double>(real(g, "the bits of a weight", 1.0f, 32.0f));
     }},
};

}  // namespace

FlagGroup plan_flags() { return {Section::basics, kPlan}; }

}  // namespace kvtide
