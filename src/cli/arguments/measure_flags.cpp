// measure_flags.cpp: the flags of the commands that measure a model: ppl, bench, logits.
#include "cli/arguments/flag_groups.h"
#include "cli/arguments/flag_values.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

constexpr Flag kPpl[] = {
    {"", "--chunks", "N", "chunks to read at most [all]",
     [](A& a, const G& g) { a.chunks = whole(g, "the number of chunks", 1, kLargestCount); }},
    {"", "--stream", "", "one pass through the live memory, every token scored; -c: how many",
     [](A& a, const G&) { a.stream = true; }},
    {"", "--bucket", "N", "positions per line of --stream [1024]",
     [](A& a, const G& g) { a.bucket = whole(g, "the size of a bucket", 1, kLargestCount); }},
    {"", "--against", "full|window",
     "with --stream: PPL, KL, agreement beside the full cache, or a window of equal bytes",
     [](A& a, const G& g) {
       a.against =
           one_of<Against>(g, "what to compare with", {{"full", Against::full}, {"window", Against::window}});
     }},
    {"-o", "--out", "FILE", "with --stream: the likeliest token behind each one, an id a line",
     [](A& a, const G& g) { a.out = g.value; }},
};
constexpr Flag kBench[] = {
    {"-p", "--n-prompt", "N", "tokens to read at once [512]; 0: do not measure reading",
     [](A& a, const G& g) { a.bench_prompt = whole(g, "the number of tokens to read", 0, kLargestCount); }},
    {"-n", "--n-gen", "N", "tokens to write one by one [64]; 0: do not measure writing",
     [](A& a, const G& g) { a.bench_tokens = whole(g, "the number of tokens to write", 0, kLargestCount); }},
    {"-d", "--n-depth", "LIST", "tokens held before measuring, for instance 0,4096 [0]",
     [](A& a, const G& g) { a.depths = whole_list(g, "depths", 0, kLargestCount); }},
    {"", "--sessions", "N", "write N texts at once, which share each pass over the weights [1]",
     [](A& a, const G& g) { a.sessions = static_cast<int>(whole(g, "the number of sessions", 1, 256)); }},
    {"", "--profile", "", "where the time goes, part by part, and what share of the limits that is",
     [](A& a, const G&) { a.session.profile = true; }},
    {"", "--plot", "FILE", "draw tokens per second against depth, with the machine's limit, as an SVG",
     [](A& a, const G& g) { a.plot = g.value; }},
    {"", "--rows", "FILE", "draw these rows too, from --json or bench/compare.py; without -m only these",
     [](A& a, const G& g) { a.rows = g.value; }},
    {"-r", "--repetitions", "N", "the median of so many runs [3]",
     [](A& a, const G& g) {
       a.repetitions = static_cast<int>(whole(g, "the number of repetitions", 1, 1000));
     }},
};
constexpr Flag kInspect[] = {
    {"-v", "--verbose", "", "a line for every tensor", [](A& a, const G&) { a.verbose = true; }},
};
constexpr Flag kLogits[] = {
    {"", "--all", "", "logits of every position [last only]", [](A& a, const G&) { a.all_positions = true; }},
};

}  // namespace

FlagGroup ppl_flags() { return {Section::basics, kPpl}; }
FlagGroup bench_flags() { return {Section::basics, kBench}; }
FlagGroup inspect_flags() { return {Section::output, kInspect}; }
FlagGroup logits_flags() { return {Section::basics, kLogits}; }

}  // namespace kvtide
