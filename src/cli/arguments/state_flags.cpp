// state_flags.cpp: the flags that speak about the KV memory; the others are in flags.cpp.
#include "base/text.h"
#include "cli/arguments/flag_values.h"
#include "cli/arguments/flags.h"
#include "cli/arguments/strategy.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

constexpr unsigned kRun = in(Command::run), kChat = in(Command::chat), kState = in(Command::state);
constexpr unsigned kAnswers = kRun | kChat;
constexpr unsigned kComputes = kAnswers | in(Command::ppl) | in(Command::bench) | in(Command::logits) |
                               in(Command::copytest) | in(Command::recall);
constexpr std::int64_t kMany = std::int64_t{1} << 31;

Overflow overflow_of(const Given& given) {
  for (const Overflow overflow : {Overflow::stop, Overflow::rolling, Overflow::refill, Overflow::procedural})
    if (given.value == overflow_name(overflow)) return overflow;
  throw Error(ErrorCode::invalid_argument, cat(given.flag, ": there is no policy ", quoted(given.value),
                                               "; there are stop, rolling, refill and procedural"));
}

void set_attention(SessionOptions& options, const Given& given) {
  constexpr std::string_view kAuto = "auto";
  options.attention_size.reset();
  options.auto_attention.reset();
  if (!given.value.starts_with(kAuto)) {
    options.attention_size = whole(given, "the attention size", 1, kMany, ", auto or auto:MIN-MAX");
    return;
  }
  AutoAttention range;
  const std::string rest = given.value.substr(kAuto.size());
  const std::size_t dash = rest.find('-');
  const auto refuse = [&] {
    throw Error(ErrorCode::invalid_argument,
                cat(given.flag, ": ", quoted(given.value),
                    " should be auto, or auto:MIN-MAX with 1 <= MIN <= MAX <= ", kMany));
  };
  if (!rest.empty()) {
    if (rest[0] != ':' || dash == rest.npos) refuse();
    range.smallest = whole({given.flag, rest.substr(1, dash - 1)}, "the smallest attention size", 1, kMany);
    range.largest = whole({given.flag, rest.substr(dash + 1)}, "the largest attention size", 1, kMany);
    if (range.smallest > range.largest) refuse();
  }
  options.auto_attention = range;
}

std::string path_of(const Given& given) {
  if (given.value.empty())
    throw Error(ErrorCode::invalid_argument, cat(given.flag, ": the name of a file must not be empty"));
  return given.value;
}

std::string one_of(const Given& given, std::string_view what,
                   std::initializer_list<std::string_view> values) {
  std::string list;
  for (const std::string_view value : values) {
    if (given.value == value) return given.value;
    list += cat(list.empty() ? "" : ", ", value);
  }
  throw Error(ErrorCode::invalid_argument,
              cat(given.flag, ": ", what, " must be one of ", list, ", not ", quoted(given.value)));
}

constexpr Flag kFlags[] = {
    {"", "--attention-size", "N",
     "each token sees its N newest positions [all]; auto, auto:MIN-MAX: adapts itself", kComputes,
     [](A& a, const G& g) { set_attention(a.session, g); }},
    {"", "--overflow", "POLICY", "a full context: stop, rolling, refill or procedural [stop]", kComputes,
     [](A& a, const G& g) { a.memory.overflow = overflow_of(g); }},
    {"", "--kv-sinks", "N", "rolling, procedural: first tokens that always stay [4]",
     kComputes | in(Command::plan),
     [](A& a, const G& g) { a.memory.sinks = whole(g, "the number of sinks", 0, kMany); }},
    {"", "--kv-window", "N", "rolling, procedural: newest tokens that stay [1024; 512]",
     kComputes | in(Command::plan),
     [](A& a, const G& g) { a.memory.window = whole(g, "the window", 1, kMany); }},
    {"", "--keep-prompt", "", "refill: the prompt stays, and of the rest the newest part", kAnswers,
     [](A& a, const G&) { a.memory.keep_prompt = true; }},
    {"", "--strategy", "STEPS", "resize on the way: prefill=512,compact=256,attend=128,expand=512", kRun,
     [](A& a, const G& g) { a.memory.strategy = parse_strategy(g); }},
    {"", "--load-state", "FILE", "go on from a snapshot; a prompt is read behind it", kAnswers,
     [](A& a, const G& g) { a.memory.load_state = path_of(g); }},
    {"", "--save-state", "FILE", "write a snapshot at the end, also after Ctrl-C", kAnswers,
     [](A& a, const G& g) { a.memory.save_state = path_of(g); }},
    {"", "--save-every", "N", "write it every N tokens, too (at the ends of chunks)", kAnswers,
     [](A& a, const G& g) { a.memory.save_every = whole(g, "the distance of snapshots", 1, kMany); }},
    {"", "--no-cache", "", "do not remember hashes of model files between runs", kAnswers,
     [](A& a, const G&) { a.memory.no_cache = true; }},
    {"", "--capacity", "N", "compact, expand: rows that fit from now on; export: rows of the arrays", kState,
     [](A& a, const G& g) { a.state.capacity = whole(g, "the capacity", 1, kMany); }},
    {"", "--length", "N", "truncate: positions that remain", kState,
     [](A& a, const G& g) { a.state.length = whole(g, "the length", 0, kMany); }},
    {"", "--layout", "NAME", "export: unified, split, per-layer or stacked [unified]", kState,
     [](A& a, const G& g) {
       a.state.layout = one_of(g, "the layout", {"unified", "split", "per-layer", "stacked"});
     }},
    {"", "--dtype", "TYPE", "export: f32 or f16 [as stored; q8_0 as f32]", kState,
     [](A& a, const G& g) {
       a.state.dtype = one_of(g, "the type", {"f32", "f16"});
     }},
    {"", "--like", "FILE", "import: a snapshot of the model that the rows belong to", kState,
     [](A& a, const G& g) { a.state.like = path_of(g); }},
    {"", "--tokens", "FILE", "import: ids of the tokens that were read [as the arrays say]", kState,
     [](A& a, const G& g) { a.state.tokens = path_of(g); }},
    {"", "--exact-only", "", "export: leave out what plain arrays cannot say, and tell it", kState,
     [](A& a, const G&) { a.state.exact_only = true; }},
};

}  // namespace

std::span<const Flag> memory_flags() { return kFlags; }

}  // namespace kvtide
