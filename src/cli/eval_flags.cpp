// eval_flags.cpp: the flags of the commands that judge memories: copytest, recall, table, plan.
#include <algorithm>

#include "base/text.h"
#include "cli/flag_values.h"
#include "cli/flags.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

constexpr unsigned kCopytest = in(Command::copytest), kRecall = in(Command::recall);
constexpr std::int64_t kMany = std::int64_t{1} << 31;

constexpr Flag kFlags[] = {
    {"-c", "--ctx", "N", "tokens of the whole text [4096]", kCopytest,
     [](A& a, const G& g) { a.lengths = {whole(g, "the length", 64, kMany)}; }},
    {"-c", "--ctx", "LIST", "tokens of whole texts, for instance 4096,8192 [4096]", kRecall,
     [](A& a, const G& g) { a.lengths = whole_list(g, "lengths", 64, kMany); }},
    {"", "--at", "LIST", "where random strings stand, percent of the text [7,35,63]", kCopytest,
     [](A& a, const G& g) { a.depth_list = whole_list(g, "places", 0, 100); }},
    {"", "--depth", "LIST", "where things stand, percent of the text [10,50,90]", kRecall,
     [](A& a, const G& g) { a.depth_list = whole_list(g, "depths", 0, 100); }},
    {"", "--needles", "N", "pairs of random words in a list [8]", kRecall,
     [](A& a, const G& g) { a.needles = whole(g, "the number of pairs", 1, 1000); }},
};

}  // namespace

std::span<const Flag> eval_flags() { return kFlags; }

}  // namespace kvtide
