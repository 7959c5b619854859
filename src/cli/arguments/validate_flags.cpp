// validate_flags.cpp: the flags of kvtide validate.
#include <cmath>
#include <cstdint>

#include "cli/arguments/flag_groups.h"
#include "cli/arguments/flag_values.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

constexpr Flag kValidate[] = {
    {"", "--reference", "PATH",
     "golden arrays, or a model: a plain pass of its weights [of the model's own weights; Core ML packages "
     "need it]",
     [](A& a, const G& g) { a.validate.reference = g.value; }},
    {"", "--ids", "LIST", "ids of the text, three at least [made-up prose]",
     [](A& a, const G& g) {
       for (const std::int64_t id : whole_list(g, "token ids", 0, INT32_MAX))
         a.validate.ids.push_back(static_cast<TokenId>(id));
     }},
    {"", "--tokens", "N", "tokens of the text [64]",
     [](A& a, const G& g) { a.validate.tokens = whole(g, "the number of tokens", 4, 4096); }},
    {"", "--length", "N", "tokens of a longer text, read once in mixed calls: past windows, slots [none]",
     [](A& a, const G& g) { a.validate.length = whole(g, "the length", 4, 65536); }},
    {"", "--chunks", "LIST", "tokens of a call: the text is read once for each [1,2,3,4,7]",
     [](A& a, const G& g) { a.validate.chunks = whole_list(g, "lengths of calls", 1, 4096); }},
    {"", "--free", "N", "greedy tokens that are compared [16]; 0: none",
     [](A& a, const G& g) { a.validate.free_tokens = whole(g, "the number of greedy tokens", 0, 4096); }},
    {"", "--gate", "X", "cosine that every layer and token must reach [as the arithmetic is]",
     [](A& a, const G& g) {  // As it was written: a float has no more digits.
       a.validate.gate = std::round(static_cast<double>(real(g, "the gate", 0.0f, 1.0f)) * 1e7) / 1e7;
     }},
    {"", "--no-exact", "", "the arithmetic of every day, also where all weights are floats",
     [](A& a, const G&) { a.validate.everyday = true; }},
    {"", "--html", "FILE", "write the report as a page with pictures",
     [](A& a, const G& g) { a.validate.html = g.value; }},
};

}  // namespace

FlagGroup validate_flags() { return {Section::basics, kValidate}; }

}  // namespace kvtide
