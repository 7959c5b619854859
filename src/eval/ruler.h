// ruler.h: texts in which something has to be found, followed or counted, with the questions at their end.
//
// The tasks are those of RULER (Hsieh and others, 2024) and two more, made here from a text at hand: which needles, chains
// and words stand where is drawn from a seed. The question comes behind everything, so a memory that compresses has
// compressed before it knows what will be asked. What is measured is -ln p per token of the answers, each read
// behind the right answers before it, and whether greedy decoding would have written each.
// Thread rules: pure functions of tokenizer, prose and options.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvtide/tokenizer.h"
#include "kvtide/types.h"

namespace kvtide {

enum class RulerTask {
  single_1,    // one number, in sentences that repeat
  single_2,    // one number, in prose
  single_3,    // one long code, in prose
  multikey_1,  // one number of four, in prose
  multikey_2,  // one number among nothing but such numbers
  multikey_3,  // the same with codes for names and for answers
  multivalue,  // four numbers of one name
  multiquery,  // four numbers of four names
  variables,   // who holds a value that was handed on four times
  common,      // the ten words of a list that come up most
  frequent,    // the three most frequent made-up words of a text
  // Not of RULER:
  instructions,  // three rules at the beginning of the text, each to be followed at its end
  arithmetic     // sums of two numbers that stand apart in prose
};
inline constexpr std::string_view kRulerTasks[] = {
    "single-1",   "single-2",  "single-3", "multikey-1", "multikey-2",   "multikey-3", "multivalue",
    "multiquery", "variables", "common",   "frequent",   "instructions", "arithmetic"};
// The first so many are those of RULER, which are made when none is named.
inline constexpr std::size_t kTasksOfRuler = static_cast<std::size_t>(RulerTask::frequent) + 1;

struct RulerSample {
  std::vector<TokenId> tokens;    // at most the length that was asked for, and nearly as many
  Pos question = 0;               // where the questions begin
  std::vector<PosRange> answers;  // what is asked for
};

// prose: what the task's sentences are hidden in, from a place that the seed chooses. Throws Error: unsupported when
// the vocabulary has too few plain words, invalid_argument when the length has no room for the task, or the prose is
// shorter than the length.
RulerSample ruler_sample(const Tokenizer& tokenizer, std::span<const TokenId> prose, RulerTask task,
                         std::int64_t length, std::uint64_t seed);

// Mean and 95% interval of numbers that belong to samples, by their standard error.
struct SampleMean {
  double mean = 0.0, half_width = 0.0;
};
SampleMean mean_of(std::span<const double> values);

}  // namespace kvtide
