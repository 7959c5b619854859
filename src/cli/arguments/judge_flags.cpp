// judge_flags.cpp: the flags of the commands that judge memories: copytest, recall, ruler, table.
#include <algorithm>

#include "base/text.h"
#include "cli/arguments/flag_groups.h"
#include "cli/arguments/flag_values.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

std::vector<std::string> words_of(const std::string& list) {
  std::vector<std::string> words;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    words.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return words;
}

constexpr Flag kCopytest[] = {
    {"-c", "--ctx", "N", "tokens of the whole text [4096]",
     [](A& a, const G& g) { a.lengths = {whole(g, "the length", 64, kLargestCount)}; }},
    {"", "--at", "LIST", "where random strings stand, percent of the text [7,35,63]",
     [](A& a, const G& g) { a.depth_list = whole_list(g, "places", 0, 100); }},
    {"", "--alone", "", "this memory only, in a fraction of the time: no full cache and no window beside it",
     [](A& a, const G&) { a.alone = true; }},
};
constexpr Flag kLengths[] = {
    {"-c", "--ctx", "LIST", "tokens of whole texts, for instance 4096,8192 [4096]",
     [](A& a, const G& g) { a.lengths = whole_list(g, "lengths", 64, kLargestCount); }},
};
constexpr Flag kRecall[] = {
    {"", "--depth", "LIST", "where things stand, percent of the text [10,50,90]",
     [](A& a, const G& g) { a.depth_list = whole_list(g, "depths", 0, 100); }},
    {"", "--needles", "N", "pairs of random words in a list [8]",
     [](A& a, const G& g) { a.needles = whole(g, "the number of pairs", 1, 1000); }},
};
constexpr Flag kRuler[] = {
    {"", "--tasks", "LIST", "of single-1 to -3, multikey-1 to -3, multivalue, ...: [the eleven of RULER]",
     [](A& a, const G& g) { a.tasks = words_of(g.value); }},
    {"", "--ratios", "LIST",
     "memories of 1/N of a full cache's bytes, for instance 2,4,8,16 [as the flags say]",
     [](A& a, const G& g) { a.ratios = whole_list(g, "ratios", 1, 1000); }},
    {"", "--samples", "N", "texts of each task and length [20]",
     [](A& a, const G& g) { a.samples = whole(g, "the number of samples", 1, 100000); }},
    {"", "--first", "N", "number of the first text: the next batch goes on where one ended [0]",
     [](A& a, const G& g) { a.first_sample = whole(g, "the number of the first text", 0, kLargestCount); }},
    {"-o", "--out", "FILE", "every text and what each memory answered, a JSON object a line",
     [](A& a, const G& g) { a.out = g.value; }},
};
constexpr Flag kTable[] = {
    {"", "--presets", "LIST", "procedural memories: minimal, balanced, faithful [balanced]",
     [](A& a, const G& g) {
       a.presets = words_of(g.value);
       for (const std::string& name : a.presets) {
         const auto known = [&](const ProceduralPreset& preset) { return name == preset.name; };
         if (std::none_of(std::begin(kProceduralPresets), std::end(kProceduralPresets), known))
           throw Error(ErrorCode::invalid_argument,
                       cat(g.flag, ": there are minimal, balanced and faithful, not ", quoted(name)));
       }
     }},
    {"", "--budgets", "LIST", "procedural memories of so many bytes, for instance 48M,128M",
     [](A& a, const G& g) {
       a.budgets.clear();
       for (const std::string& word : words_of(g.value))
         a.budgets.push_back(bytes({g.flag, word}, "the budget", 1 << 20));
     }},
    {"-o", "--out", "FOLDER", "for cells, table.md and table.json; cells that are there are kept",
     [](A& a, const G& g) { a.out = g.value; }},
};

}  // namespace

FlagGroup copytest_flags() { return {Section::basics, kCopytest}; }
FlagGroup lengths_flags() { return {Section::basics, kLengths}; }
FlagGroup recall_flags() { return {Section::basics, kRecall}; }
FlagGroup ruler_flags() { return {Section::basics, kRuler}; }
FlagGroup table_flags() { return {Section::basics, kTable}; }

}  // namespace kvtide
