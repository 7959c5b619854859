// eval_flags.cpp: the flags of the commands that judge memories: copytest, recall, table, plan.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "cli/arguments/flag_values.h"
#include "cli/arguments/flags.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

constexpr unsigned kCopytest = in(Command::copytest), kRecall = in(Command::recall),
                   kTable = in(Command::table), kPlan = in(Command::plan), kValidate = in(Command::validate);
constexpr std::int64_t kMany = std::int64_t{1} << 31;

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    words.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return words;
}

constexpr Flag kFlags[] = {
    {"-c", "--ctx", "N", "tokens of the whole text [4096]", kCopytest,
     [](A& a, const G& g) { a.lengths = {whole(g, "the length", 64, kMany)}; }},
    {"-c", "--ctx", "LIST", "tokens of whole texts, for instance 4096,8192 [4096]", kRecall | kTable,
     [](A& a, const G& g) { a.lengths = whole_list(g, "lengths", 64, kMany); }},
    {"", "--at", "LIST", "where random strings stand, percent of the text [7,35,63]", kCopytest,
     [](A& a, const G& g) { a.depth_list = whole_list(g, "places", 0, 100); }},
    {"", "--depth", "LIST", "where things stand, percent of the text [10,50,90]", kRecall,
     [](A& a, const G& g) { a.depth_list = whole_list(g, "depths", 0, 100); }},
    {"", "--needles", "N", "pairs of random words in a list [8]", kRecall,
     [](A& a, const G& g) { a.needles = whole(g, "the number of pairs", 1, 1000); }},
    {"", "--presets", "LIST", "procedural memories: minimal, balanced, faithful [balanced]", kTable,
     [](A& a, const G& g) {
       a.presets = words_of(g.value);
       for (const std::string& name : a.presets) {
         const auto known = [&](const ProceduralPreset& preset) { return name == preset.name; };
         if (std::none_of(std::begin(kProceduralPresets), std::end(kProceduralPresets), known))
           throw Error(ErrorCode::invalid_argument,
                       cat(g.flag, ": there are minimal, balanced and faithful, not ", quoted(name)));
       }
     }},
    {"", "--budgets", "LIST", "procedural memories of so many bytes, for instance 48M,128M", kTable,
     [](A& a, const G& g) {
       a.budgets.clear();
       for (const std::string& word : words_of(g.value))
         a.budgets.push_back(bytes({g.flag, word}, "the budget", 1 << 20));
     }},
    {"-o", "--out", "FOLDER", "for cells, table.md and table.json; cells that are there are kept", kTable,
     [](A& a, const G& g) { a.out = g.value; }},
    {"-c", "--ctx", "N", "tokens of the text [100000]", kPlan,
     [](A& a, const G& g) { a.lengths = {whole(g, "the length", 64, kMany)}; }},
    {"", "--budget", "BYTES", "the same as --kv-budget", kPlan,
     [](A& a, const G& g) {
       a.memory.procedural.any = true;
       a.memory.procedural.budget = bytes(g, "the budget", 1 << 20);
     }},
    {"", "--like", "NAME", "the shape of a known model: mistral-7b, llama-3.1-8b, gemma-3-4b, ...", kPlan,
     [](A& a, const G& g) { a.plan.like = g.value; }},
    {"", "--layers", "N", "layers of a model that is not here", kPlan,
     [](A& a, const G& g) { a.plan.layers = whole(g, "the number of layers", 1, 1024); }},
    {"", "--heads", "N", "query heads [as many as KV heads]", kPlan,
     [](A& a, const G& g) { a.plan.heads = whole(g, "the number of query heads", 1, 4096); }},
    {"", "--kv-heads", "N|TABLE",
     "KV heads; or the head table: even, or a file that kvtide heads wrote [auto]", kPlan,
     [](A& a, const G& g) {
       if (g.value.empty() || g.value[0] < '0' || g.value[0] > '9')
         a.memory.procedural.heads = g.value;
       else
         a.plan.kv_heads = whole(g, "the number of KV heads", 1, 4096);
     }},
    {"", "--head-dim", "N", "elements of a head", kPlan,
     [](A& a, const G& g) { a.plan.head_dim = whole(g, "the size of a head", 1, 512); }},
    {"", "--width", "N", "of the residual stream [query heads x head size]", kPlan,
     [](A& a, const G& g) { a.plan.width = whole(g, "the width", 1, 1 << 20); }},
    {"", "--hidden", "N", "of the feed-forward [3.5 times the width]", kPlan,
     [](A& a, const G& g) { a.plan.hidden = whole(g, "the width of the feed-forward", 1, 1 << 20); }},
    {"", "--vocab", "N", "tokens of the vocabulary [32768]", kPlan,
     [](A& a, const G& g) { a.plan.vocab = whole(g, "the size of the vocabulary", 1, 1 << 24); }},
    {"", "--trained", "N", "tokens that the model was trained for [--ctx]", kPlan,
     [](A& a, const G& g) { a.plan.trained = whole(g, "the trained length", 64, kMany); }},
    {"", "--full-heads", "N", "heads that keep every row [a share like SmolLM2's]", kPlan,
     [](A& a, const G& g) { a.plan.full_heads = whole(g, "the number of heads", 0, 1 << 20); }},
    {"", "--bits", "X", "bits per weight, for the predicted speed [4.5]", kPlan,
     [](A& a, const G& g) {
       a.plan.bits = static_cast<double>(real(g, "the bits of a weight", 1.0f, 32.0f));
     }},
    {"", "--reference", "FOLDER", "golden arrays [a plain f32 forward pass of the same weights]", kValidate,
     [](A& a, const G& g) { a.validate.reference = g.value; }},
    {"", "--tokens", "N", "tokens of the text [64]", kValidate,
     [](A& a, const G& g) { a.validate.tokens = whole(g, "the number of tokens", 4, 4096); }},
    {"", "--chunks", "LIST", "tokens of a call: the text is read once for each [1,2,3,4,7]", kValidate,
     [](A& a, const G& g) { a.validate.chunks = whole_list(g, "lengths of calls", 1, 4096); }},
    {"", "--free", "N", "greedy tokens that are compared [16]; 0: none", kValidate,
     [](A& a, const G& g) { a.validate.free_tokens = whole(g, "the number of greedy tokens", 0, 4096); }},
    {"", "--gate", "X", "cosine that every layer and token must reach [as the arithmetic is]", kValidate,
     [](A& a, const G& g) {  // As it was written: a float has no more digits.
       a.validate.gate = std::round(static_cast<double>(real(g, "the gate", 0.0f, 1.0f)) * 1e7) / 1e7;
     }},
    {"", "--no-exact", "", "the arithmetic of every day, also where all weights are floats", kValidate,
     [](A& a, const G&) { a.validate.everyday = true; }},
    {"", "--html", "FILE", "write the report as a page with pictures", kValidate,
     [](A& a, const G& g) { a.validate.html = g.value; }},
};

}  // namespace

std::span<const Flag> eval_flags() { return kFlags; }

}  // namespace kvtide
