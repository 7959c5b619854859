#include "cli/arguments/flags.h"

#include <random>
#include <vector>

#include "base/text.h"
#include "cli/arguments/flag_values.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

constexpr unsigned kRun = in(Command::run), kChat = in(Command::chat), kPpl = in(Command::ppl),
                   kBench = in(Command::bench), kInspect = in(Command::inspect), kState = in(Command::state),
                   kTokenize = in(Command::tokenize), kHeads = in(Command::heads),
                   kShard = in(Command::shard), kLogits = in(Command::logits);
constexpr unsigned kAnswers = kRun | kChat;
constexpr unsigned kJudges = in(Command::copytest) | in(Command::recall);
constexpr unsigned kTable = in(Command::table), kPlan = in(Command::plan), kValidate = in(Command::validate);
constexpr unsigned kComputes = kAnswers | kPpl | kBench | kLogits | kJudges;
constexpr unsigned kEncodes = kRun | kTokenize | kLogits | kShard | kValidate;
constexpr unsigned kAny = kComputes | kTable | kPlan | kInspect | kTokenize | kHeads | kValidate;

constexpr std::int64_t kMany = std::int64_t{1} << 31;

std::uint64_t seed_of(const Given& given) {
  const std::int64_t seed = whole(given, "the seed", -1, INT64_MAX);
  return seed >= 0 ? static_cast<std::uint64_t>(seed) : std::random_device()();
}

constexpr Flag kFlags[] = {
    {"-m", "--model", "FILE", "the model: a GGUF file (of a split one the first part) or a folder",
     kAny | kShard,
     [](A& a, const G& g) {
       a.model = g.value;
       a.models.push_back(g.value);
     }},
    {"-p", "--prompt", "TEXT", "the prompt; with -f the question about that document", kEncodes,
     [](A& a, const G& g) { a.prompt = g.value; }},
    {"-f", "--file", "FILE", "read the text from a file; - is stdin, also used without -p and -f",
     kEncodes | kPpl | kBench | kJudges | kTable, [](A& a, const G& g) { a.file = g.value; }},
    {"-p", "--system", "TEXT", "the system message", kChat, [](A& a, const G& g) { a.system = g.value; }},
    {"", "--system", "TEXT", "the system message, with --chat", kRun,
     [](A& a, const G& g) { a.system = g.value; }},
    {"-n", "--predict", "N", "tokens to write at most [run 256, chat -1]; -1: until the end of the text",
     kAnswers, [](A& a, const G& g) { a.max_tokens = whole(g, "the number of tokens to write", -1, kMany); }},
    {"-c", "--ctx-size", "N", "tokens of context [as the model was trained]; for ppl: of a chunk [512]",
     kComputes & ~kBench & ~kJudges,
     [](A& a, const G& g) { a.session.context = whole(g, "the context", 1, kMany); }},
    {"", "--chat", "", "put the prompt into the model's chat template, as one user turn", kRun,
     [](A& a, const G&) { a.chat = true; }},
    {"", "--chat-template", "NAME", "chatml, llama-3, gemma or mistral-instruct [as the model says]",
     kAnswers, [](A& a, const G& g) { a.chat_template = g.value; }},
    {"", "--stop", "TEXT", "end the answer before this text; may be repeated", kAnswers,
     [](A& a, const G& g) { a.stop.push_back(g.value); }},
    {"", "--temp", "X", "temperature [0]; 0: always the most likely token", kAnswers,
     [](A& a, const G& g) { a.sampler.temperature = real(g, "the temperature", 0.0f, 1e6f); }},
    {"", "--top-k", "N", "choose among the N most likely tokens [40]; 0: all", kAnswers,
     [](A& a, const G& g) { a.sampler.top_k = static_cast<int>(whole(g, "top-k", 0, INT32_MAX)); }},
    {"", "--top-p", "X", "choose among the tokens that share this much probability [0.95]; 1: all", kAnswers,
     [](A& a, const G& g) { a.sampler.top_p = real(g, "top-p", 1e-6f, 1.0f); }},
    {"", "--min-p", "X", "drop tokens below this share of the most likely one's probability [0.05]", kAnswers,
     [](A& a, const G& g) { a.sampler.min_p = real(g, "min-p", 0.0f, 1.0f); }},
    {"", "--repeat-penalty", "X", "make recent tokens less likely [1: off]", kAnswers,
     [](A& a, const G& g) { a.sampler.repeat_penalty = real(g, "the repeat penalty", 0.01f, 1000.0f); }},
    {"", "--repeat-last-n", "N", "how many tokens the penalty looks back at [64]", kAnswers,
     [](A& a, const G& g) {
       a.sampler.repeat_last = static_cast<int>(whole(g, "the reach of the repeat penalty", 0, INT32_MAX));
     }},
    {"-s", "--seed", "N", "of the random choices [0]; -1: another one each time", kAnswers,
     [](A& a, const G& g) { a.sampler.seed = seed_of(g); }},
    {"", "--exact", "", "f32 activations instead of 8-bit ones: slower, nearer to the ideal",
     kComputes | kTable | kValidate, [](A& a, const G&) { a.session.exact = true; }},
    {"-ctk", "--cache-type-k", "TYPE", "keys of the KV memory: f32, f16 or q8_0 [f16]",
     kComputes | kPlan | kValidate,
     [](A& a, const G& g) {
       a.session.key_type = kv_type(g);
       a.memory.key_type_given = true;
     }},
    {"-ctv", "--cache-type-v", "TYPE", "values of the KV memory: f32, f16 or q8_0 [f16]",
     kComputes | kPlan | kValidate,
     [](A& a, const G& g) {
       a.session.value_type = kv_type(g);
       a.memory.value_type_given = true;
     }},
    {"", "--no-bos", "", "do not begin with the vocabulary's start token", kEncodes,
     [](A& a, const G&) { a.no_bos = true; }},
    {"", "--no-special", "", "markers such as <|im_end|> in the text are plain text", kEncodes,
     [](A& a, const G&) { a.no_special = true; }},
    {"", "--chunks", "N", "chunks to read at most [all]", kPpl,
     [](A& a, const G& g) { a.chunks = whole(g, "the number of chunks", 1, kMany); }},
    {"", "--stream", "", "one pass through the live memory, every token scored; -c: how many", kPpl,
     [](A& a, const G&) { a.stream = true; }},
    {"", "--bucket", "N", "positions per line of --stream [1024]", kPpl,
     [](A& a, const G& g) { a.bucket = whole(g, "the size of a bucket", 1, kMany); }},
    {"", "--against", "full|window",
     "with --stream: PPL, KL, agreement beside the full cache, or a window of equal bytes", kPpl,
     [](A& a, const G& g) {
       if (g.value != "full" && g.value != "window")
         throw Error(ErrorCode::invalid_argument,
                     cat(g.flag, ": what to compare with must be full or window, not ", quoted(g.value)));
       a.against = g.value == "full" ? Against::full : Against::window;
     }},
    {"-p", "--n-prompt", "N", "tokens to read at once [512]; 0: do not measure reading", kBench,
     [](A& a, const G& g) { a.bench_prompt = whole(g, "the number of tokens to read", 0, kMany); }},
    {"-n", "--n-gen", "N", "tokens to write one by one [64]; 0: do not measure writing", kBench,
     [](A& a, const G& g) { a.bench_tokens = whole(g, "the number of tokens to write", 0, kMany); }},
    {"-d", "--n-depth", "LIST", "tokens held before measuring, for instance 0,4096 [0]", kBench,
     [](A& a, const G& g) { a.depths = whole_list(g, "depths", 0, kMany); }},
    {"", "--profile", "", "where the time goes, part by part, and what share of the limits that is", kBench,
     [](A& a, const G&) { a.session.profile = true; }},
    {"", "--plot", "FILE", "draw tokens per second against depth, with the machine's limit, as an SVG",
     kBench, [](A& a, const G& g) { a.plot = g.value; }},
    {"", "--rows", "FILE", "draw these rows too, from --json or bench/compare.py; without -m only these",
     kBench, [](A& a, const G& g) { a.rows = g.value; }},
    {"-r", "--repetitions", "N", "the median of so many runs [3]", kBench,
     [](A& a, const G& g) {
       a.repetitions = static_cast<int>(whole(g, "the number of repetitions", 1, 1000));
     }},
    {"", "--all", "", "logits of every position [last only]", kLogits,
     [](A& a, const G&) { a.all_positions = true; }},
    {"-o", "--out", "FILE", "with --stream: the likeliest token behind each one, an id a line", kPpl,
     [](A& a, const G& g) { a.out = g.value; }},
    {"-o", "--out", "FILE", "the file to write [state: the snapshot itself]", kLogits | kState | kHeads,
     [](A& a, const G& g) { a.out = g.value; }},
    {"", "--json", "", "print JSON",
     kPpl | kBench | kInspect | kTokenize | kState | kJudges | kTable | kPlan | kShard | kValidate,
     [](A& a, const G&) { a.json = true; }},
    {"", "--report", "FILE", "write the figures of the run as JSON", kAnswers,
     [](A& a, const G& g) { a.report = g.value; }},
    {"", "--logits-hash", "", "print a hash of all logits used, to compare runs bit for bit", kRun,
     [](A& a, const G&) { a.logits_hash = true; }},
    {"-t", "--threads", "N", "changes speed only [as many as the machine has]",
     kComputes | kTable | kPlan | kHeads | kShard | kValidate,
     [](A& a, const G& g) {
       a.session.threads = a.loading.threads = static_cast<int>(whole(g, "the number of threads", 1, 256));
     }},
    {"", "--prefill-chunk", "N", "tokens per forward pass while reading, changes speed only [512]",
     kComputes | kTable,
     [](A& a, const G& g) { a.session.prefill_chunk = whole(g, "the prefill chunk", 1, 65536); }},
    {"", "--kernels", "NAME", "avx512_bf16, avx512, avx2 or scalar [the best], changes speed only",
     kComputes | kTable | kShard | kValidate, [](A& a, const G& g) { a.session.kernels = g.value; }},
    {"", "--no-mmap", "", "copy the file into memory instead of mapping it", kAny,
     [](A& a, const G&) { a.loading.map_file = false; }},
    {"-h", "--help", "", "show this", kAny | kState | kShard, [](A& a, const G&) { a.help = true; }},
};

}  // namespace

std::span<const Flag> all_flags() {
  static const std::vector<Flag> kAll = [] {
    std::vector<Flag> all(std::begin(kFlags), std::end(kFlags));
    const std::span<const Flag> memory = memory_flags();
    const std::span<const Flag> procedural = procedural_flags();
    all.insert(all.end() - 1, memory.begin(), memory.end());  // --help stays the last
    const std::span<const Flag> eval = eval_flags();
    all.insert(all.begin() + 1, eval.begin(), eval.end());
    const std::span<const Flag> shard = shard_flags();
    all.insert(all.begin() + 1, shard.begin(), shard.end());
    all.insert(all.end() - 1, procedural.begin(), procedural.end());
    return all;
  }();
  return kAll;
}

}  // namespace kvtide
