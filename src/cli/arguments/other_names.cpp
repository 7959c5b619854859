#include "cli/arguments/other_names.h"

#include <algorithm>
#include <iterator>

namespace kvtide {
namespace {

struct OtherName {
  std::string_view word, says;
};

constexpr OtherName kOtherNames[] = {
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

constexpr std::string_view kSayNoGpu =
    "kvtide computes on the processor and has no layers to move; leave it out";
constexpr std::string_view kSayOneAttention =
    "there is one attention, which never holds a table of all scores; leave it out";
constexpr std::string_view kSayTalk = "`kvtide chat` is the command that talks";
constexpr std::string_view kSayChunk = "--prefill-chunk N is how many tokens are read at once";
constexpr std::string_view kSaySnapshot = "--save-state FILE and --load-state FILE keep what was read";
constexpr std::string_view kSayShift =
    "--overflow rolling or --kv-budget 64M let a text be longer than the context";

constexpr std::string_view kSayHub =
    "-m hf:ORG/NAME is a model in the cache of Hugging Face; nothing is downloaded, but by `kvtide fetch`";

constexpr OtherName kAdviceAbout[] = {
    {"-hf", kSayHub},
    {"-hfr", kSayHub},
    {"--hf-repo", kSayHub},
    {"-ngl", kSayNoGpu},
    {"--gpu-layers", kSayNoGpu},
    {"--n-gpu-layers", kSayNoGpu},
    {"-dev", kSayNoGpu},
    {"--device", kSayNoGpu},
    {"-sm", kSayNoGpu},
    {"-mg", kSayNoGpu},
    {"-fa", kSayOneAttention},
    {"--flash-attn", kSayOneAttention},
    {"-i", kSayTalk},
    {"--interactive", kSayTalk},
    {"-cnv", kSayTalk},
    {"--conversation", kSayTalk},
    {"--interactive-first", kSayTalk},
    {"-b", kSayChunk},
    {"--batch-size", kSayChunk},
    {"-ub", kSayChunk},
    {"--ubatch-size", kSayChunk},
    {"--prompt-cache", kSaySnapshot},
    {"--context-shift", kSayShift},
    {"--keep", kSayShift},
    {"-r", "--stop TEXT ends an answer"},
    {"--reverse-prompt", "--stop TEXT ends an answer"},
    {"--mlock", "weights stay in the mapped file; leave it out"},
    {"--no-display-prompt", "the prompt is never printed; leave it out"},
    {"--stream", "answers are always written as they come; leave it out"},
    {"--color", "answers have no colours; leave it out"},
};

template <std::size_t N>
std::string_view find_other(const OtherName (&entries)[N], std::string_view word) {
  const auto found = std::find_if(std::begin(entries), std::end(entries),
                                  [&](const OtherName& e) { return e.word == word; });
  return found == std::end(entries) ? std::string_view() : found->says;
}

}  // namespace

std::string_view name_meant(std::string_view word) { return find_other(kOtherNames, word); }

std::string_view advice_about(std::string_view word) { return find_other(kAdviceAbout, word); }

}  // namespace kvtide
