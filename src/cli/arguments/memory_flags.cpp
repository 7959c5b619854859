// memory_flags.cpp: the flags that speak about the KV memory of a session, but for those of a procedural one.
#include "base/text.h"
#include "cli/arguments/flag_groups.h"
#include "cli/arguments/flag_values.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

Overflow overflow_of(const Given& given) {
  if (given.value == "procedural")
    throw Error(ErrorCode::invalid_argument,
                cat(given.flag, ": a procedural memory never fills up; --kv-proc on switches it on"));
  return one_of<Overflow>(
      given, "the policy",
      {{"stop", Overflow::stop}, {"rolling", Overflow::rolling}, {"refill", Overflow::refill}});
}

void set_attention(SessionOptions& options, const Given& given) {
  constexpr std::string_view kAuto = "auto";
  options.attention_size.reset();
  options.auto_attention.reset();
  if (!given.value.starts_with(kAuto)) {
    options.attention_size = whole(given, "the attention size", 1, kLargestCount, ", auto or auto:MIN-MAX");
    return;
  }
  AutoAttention range;
  const std::string rest = given.value.substr(kAuto.size());
  const std::size_t dash = rest.find('-');
  const auto refuse = [&] {
    throw Error(ErrorCode::invalid_argument,
                cat(given.flag, ": ", quoted(given.value),
                    " should be auto, or auto:MIN-MAX with 1 <= MIN <= MAX <= ", kLargestCount));
  };
  if (!rest.empty()) {
    if (rest[0] != ':' || dash == rest.npos) refuse();
    range.smallest =
        whole({given.flag, rest.substr(1, dash - 1)}, "the smallest attention size", 1, kLargestCount);
    range.largest =
        whole({given.flag, rest.substr(dash + 1)}, "the largest attention size", 1, kLargestCount);
    if (range.smallest > range.largest) refuse();
  }
  options.auto_attention = range;
}

constexpr Flag kCacheTypes[] = {
    {"-ctk", "--cache-type-k", "TYPE", "keys of the KV memory: f32, f16, q8_0 or q4_0 [f16]",
     [](A& a, const G& g) {
       a.session.key_type = element_type(g);
       a.memory.key_type_given = true;
     }},
    {"-ctv", "--cache-type-v", "TYPE", "values of the KV memory: f32, f16, q8_0 or q4_0 [f16]",
     [](A& a, const G& g) {
       a.session.value_type = element_type(g);
       a.memory.value_type_given = true;
     }},
};
constexpr Flag kAttention[] = {
    {"", "--attention-size", "N",
     "each token sees its N newest positions [all]; auto, auto:MIN-MAX: adapts itself",
     [](A& a, const G& g) { set_attention(a.session, g); }},
    {"", "--overflow", "POLICY", "a full context: stop, rolling or refill [stop]",
     [](A& a, const G& g) { a.memory.overflow = overflow_of(g); }},
};
constexpr Flag kCheckpoints[] = {
    {"", "--kv-checkpoint-every", "N",
     "windows and recurrences: tokens between checkpoints [chat, serve 512; run 0: none]",
     [](A& a, const G& g) {
       a.session.checkpoints.every = whole(g, "the distance of checkpoints", 0, kLargestCount);
     }},
    {"", "--kv-checkpoint-budget", "BYTES", "what the checkpoints of a memory take at most [64M]",
     [](A& a, const G& g) { a.session.checkpoints.budget = bytes(g, "the budget of checkpoints", 0); }},
};
constexpr Flag kRefill[] = {
    {"", "--keep-prompt", "", "refill: the prompt stays, and of the rest the newest part",
     [](A& a, const G&) { a.memory.keep_prompt = true; }},
};
constexpr Flag kSnapshots[] = {
    {"", "--load-state", "FILE", "go on from a snapshot; a prompt is read behind it",
     [](A& a, const G& g) { a.memory.load_state = path_of(g); }},
    {"", "--save-state", "FILE", "write a snapshot at the end, also after Ctrl-C",
     [](A& a, const G& g) { a.memory.save_state = path_of(g); }},
    {"", "--save-every", "N", "write it every N tokens, too (at the ends of chunks)",
     [](A& a, const G& g) { a.memory.save_every = whole(g, "the distance of snapshots", 1, kLargestCount); }},
};

}  // namespace

FlagGroup cache_type_flags() { return {Section::memory, kCacheTypes}; }
FlagGroup attention_flags() { return {Section::memory, kAttention}; }
FlagGroup checkpoint_flags() { return {Section::snapshots, kCheckpoints}; }
FlagGroup refill_flags() { return {Section::memory, kRefill}; }
FlagGroup snapshot_flags() { return {Section::snapshots, kSnapshots}; }

}  // namespace kvtide
