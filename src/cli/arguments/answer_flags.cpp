// answer_flags.cpp: the flags of answers: of run and chat, and those that only one of them takes.
#include <random>

#include "base/refuse.h"
#include "base/text.h"
#include "cli/arguments/flag_groups.h"
#include "cli/arguments/flag_values.h"
#include "cli/arguments/strategy.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

std::uint64_t seed_of(const Given& given) {
  const std::int64_t seed = whole(given, "the seed", -1, INT64_MAX);
  return seed >= 0 ? static_cast<std::uint64_t>(seed) : std::random_device()();
}

void set_system(Arguments& a, const Given& g) { set_once(a.system, g); }

constexpr Flag kLength[] = {
    {"-n", "--predict", "N", "tokens to write at most [run 256, chat -1]; -1: until the end of the text",
     [](A& a, const G& g) { a.max_tokens = whole(g, "the number of tokens to write", -1, kLargestCount); }},
};
constexpr Flag kAnswers[] = {
    {"", "--chat-template", "NAME", "chatml, llama-3, gemma or mistral-instruct [as the model says]",
     [](A& a, const G& g) { a.chat_template = g.value; }},
    {"", "--stop", "TEXT", "end the answer before this text; may be repeated",
     [](A& a, const G& g) { a.stop.push_back(g.value); }},
    {"", "--temp", "X", "temperature [run 0, chat 0.7]; 0: always the most likely token",
     [](A& a, const G& g) { a.sampler.temperature = real(g, "the temperature", 0.0f, 1e6f); }},
    {"", "--top-k", "N", "choose among the N most likely tokens [40]; 0: all",
     [](A& a, const G& g) { a.sampler.top_k = static_cast<int>(whole(g, "top-k", 0, INT32_MAX)); }},
    {"", "--top-p", "X", "choose among the tokens that share this much probability [0.95]; 1: all",
     [](A& a, const G& g) { a.sampler.top_p = real(g, "top-p", 1e-6f, 1.0f); }},
    {"", "--min-p", "X", "drop tokens below this share of the most likely one's probability [0.05]",
     [](A& a, const G& g) { a.sampler.min_p = real(g, "min-p", 0.0f, 1.0f); }},
    {"", "--repeat-penalty", "X", "make recent tokens less likely [run 1: off, chat 1.1]",
     [](A& a, const G& g) { a.sampler.repeat_penalty = real(g, "the repeat penalty", 0.01f, 1000.0f); }},
    {"", "--repeat-last-n", "N", "how many tokens the penalty looks back at [64]",
     [](A& a, const G& g) {
       a.sampler.repeat_last = static_cast<int>(whole(g, "the reach of the repeat penalty", 0, INT32_MAX));
     }},
    {"", "--draft", "ngram",
     "guess tokens from what the text said before; changes speed only, the answer is the same",
     [](A& a, const G& g) {
       if (g.value != "ngram") refuse(cat(g.flag, ": there is ngram, not ", quoted(g.value)));
       a.draft = Draft::ngram;
     }},
    {"-s", "--seed", "N", "of the random choices [0]; -1: another one each time",
     [](A& a, const G& g) { a.sampler.seed = seed_of(g); }},
};
constexpr Flag kReport[] = {
    {"-v", "--verbose", "", "all figures at the end, and what a budget picked",
     [](A& a, const G&) { a.verbose = true; }},
    {"", "--report", "FILE", "write the figures of the run as JSON",
     [](A& a, const G& g) { a.report = g.value; }},
};
constexpr Flag kRun[] = {
    {"", "--chat", "", "put the prompt into the model's chat template, as one user turn",
     [](A& a, const G&) { a.chat = true; }},
    {"", "--system", "TEXT", "the system message, with --chat", set_system},
};
constexpr Flag kForm[] = {
    {"", "--json-schema", "FILE|TEXT", "hold the answer to JSON of this schema",
     [](A& a, const G& g) {
       set_once(a.json_schema, g);
       if (a.grammar) refuse("--json-schema: --grammar holds the answer to a form already");
     }},
    {"", "--grammar", "FILE", "hold the answer to a grammar in the notation of llama.cpp",
     [](A& a, const G& g) {
       set_once(a.grammar, g);
       if (a.json_schema) refuse("--grammar: --json-schema holds the answer to a form already");
     }},
};
constexpr Flag kHash[] = {
    {"", "--logits-hash", "", "print a hash of all logits used, to compare runs bit for bit",
     [](A& a, const G&) { a.logits_hash = true; }},
};
constexpr Flag kStrategy[] = {
    {"", "--strategy", "STEPS", "resize on the way: prefill=512,compact=256,attend=128,expand=512",
     [](A& a, const G& g) { a.memory.strategy = parse_strategy(g); }},
};
constexpr Flag kChat[] = {
    {"-p", "--system", "TEXT", "the system message", set_system},
};

}  // namespace

FlagGroup length_flags() { return {Section::basics, kLength}; }
FlagGroup answer_flags() { return {Section::words, kAnswers}; }
FlagGroup report_flags() { return {Section::output, kReport}; }
FlagGroup run_flags() { return {Section::basics, kRun}; }
FlagGroup form_flags() { return {Section::words, kForm}; }
FlagGroup hash_flags() { return {Section::output, kHash}; }
FlagGroup strategy_flags() { return {Section::memory, kStrategy}; }
FlagGroup chat_flags() { return {Section::basics, kChat}; }

}  // namespace kvtide
