#include "cli/arguments/other_names.h"

#include <algorithm>
#include <iterator>

namespace kvtide {
namespace {

struct Entry {
  std::string_view word, says;
};

constexpr Entry kNames[] = {
    {"--temperature", "--temp"},
    {"--n-predict", "--predict"},
    {"--max-tokens", "--predict"},
    {"--max-new-tokens", "--predict"},
    {"--ctx", "--ctx-size"},
    {"--context", "--ctx-size"},
    {"--n-ctx", "--ctx-size"},
    {"-sys", "--system"},
    {"--system-prompt", "--system"},
    {"--n-threads", "--threads"},
    {"--repetition-penalty", "--repeat-penalty"},
};

constexpr std::string_view kNoGpu =
    "kvtide computes on the processor and has no layers to move; leave it out";
constexpr std::string_view kOneAttention =
    "there is one attention, which never holds a table of all scores; leave it out";
constexpr std::string_view kTalk = "`kvtide chat` is the command that talks";
constexpr std::string_view kChunk = "--prefill-chunk N is how many tokens are read at once";
constexpr std::string_view kSnapshot = "--save-state FILE and --load-state FILE keep what was read";
constexpr std::string_view kShift =
    "--overflow rolling or --kv-budget 64M let a text be longer than the context";

constexpr Entry kAdvice[] = {
    {"-ngl", kNoGpu},
    {"--gpu-layers", kNoGpu},
    {"--n-gpu-layers", kNoGpu},
    {"-dev", kNoGpu},
    {"--device", kNoGpu},
    {"-sm", kNoGpu},
    {"-mg", kNoGpu},
    {"-fa", kOneAttention},
    {"--flash-attn", kOneAttention},
    {"-i", kTalk},
    {"--interactive", kTalk},
    {"-cnv", kTalk},
    {"--conversation", kTalk},
    {"--interactive-first", kTalk},
    {"-b", kChunk},
    {"--batch-size", kChunk},
    {"-ub", kChunk},
    {"--ubatch-size", kChunk},
    {"--prompt-cache", kSnapshot},
    {"--context-shift", kShift},
    {"--keep", kShift},
    {"-r", "--stop TEXT ends an answer"},
    {"--reverse-prompt", "--stop TEXT ends an answer"},
    {"--mlock", "weights stay in the mapped file; leave it out"},
    {"--no-display-prompt", "the prompt is never printed; leave it out"},
    {"--stream", "answers are always written as they come; leave it out"},
    {"--color", "answers have no colours; leave it out"},
};

template <std::size_t N>
std::string_view find(const Entry (&entries)[N], std::string_view word) {
  const auto found =
      std::find_if(std::begin(entries), std::end(entries), [&](const Entry& e) { return e.word == word; });
  return found == std::end(entries) ? std::string_view() : found->says;
}

}  // namespace

std::string_view name_meant(std::string_view word) { return find(kNames, word); }

std::string_view advice_about(std::string_view word) { return find(kAdvice, word); }

}  // namespace kvtide
