// coreml_flags.cpp: the flags of kvtide coreml, and which of its actions takes them.
#include <algorithm>
#include <iterator>

#include "base/refuse.h"
#include "base/text.h"
#include "cli/arguments/flag_groups.h"
#include "cli/arguments/flag_values.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

void choose_weights(A& a, const G& g, CoremlWeights weights) {
  if (a.coreml.how.weights != CoremlWeights::f16)
    refuse(cat(g.flag, ": weights are written in one way; --int8 and --int4 may be given once"));
  a.coreml.how.weights = weights;
  a.coreml.changes_export = true;
}

void choose_parts(A& a, const G& g, int chunks) {
  if (a.coreml.how.chunks != 0) refuse(cat(g.flag, ": --per-layer and --chunks: use one of them"));
  a.coreml.how.chunks = chunks;
  a.coreml.changes_export = true;
}

// "1..4", "1,4", "1"
void choose_tokens(A& a, const G& g) {
  constexpr std::int64_t kMost = 4096;
  constexpr std::string_view kWhat = "the number of tokens in a call";
  CoremlExport& how = a.coreml.how;
  a.coreml.changes_export = true;
  const std::size_t dots = g.value.find("..");
  if (dots == g.value.npos) {
    how.token_sizes = whole_list(g, kWhat, 1, kMost);
    return;
  }
  const std::string least = g.value.substr(0, dots), most = g.value.substr(dots + 2);
  how.token_sizes.clear();
  how.least_tokens = whole({g.flag, least}, kWhat, 1, kMost);
  how.most_tokens = whole({g.flag, most}, kWhat, how.least_tokens, kMost);
}

constexpr Flag kCoreml[] = {
    {"", "--mil", "", "inspect: the program as MIL text instead",
     [](Arguments& a, const Given&) { a.coreml.mil = true; }},
    {"", "--tokenizer", "FOLDER",
     "run: text in and out; lint: compare special ids of config.json and tokenizer.json, too",
     [](Arguments& a, const Given& g) { a.coreml.tokenizer = g.value; }},
    {"", "--ids", "LIST", "run: the prompt as token ids, 1,2,3; ids are printed, too",
     [](Arguments& a, const Given& g) { a.coreml.ids = whole_list(g, "a token id", 0, INT32_MAX); }},
    {"-n", "--predict", "N", "run, bench: tokens to write at most [64; bench 32]",
     [](Arguments& a, const Given& g) {
       a.max_tokens = whole(g, "the number of tokens to write", 1, std::int64_t{1} << 20);
     }},
    {"", "--chunk", "N", "run, bench: tokens of the prompt in a call at most [all that the package takes]",
     [](Arguments& a, const Given& g) {
       a.coreml.chunk = whole(g, "the number of tokens", 1, std::int64_t{1} << 20);
     }},
    {"", "--load-state", "FILE",
     "run: go on from what was read: kvtide state export --layout per-layer writes it, too",
     [](Arguments& a, const Given& g) { a.coreml.load = path_of(g); }},
    {"", "--save-state", "FILE",
     "run: write what was read, as .safetensors; kvtide state import takes it, too",
     [](Arguments& a, const Given& g) { a.coreml.save = path_of(g); }},
    {"", "--run", "", "lint: also run it, and compare several ways to cut a text into calls",
     [](Arguments& a, const Given&) { a.coreml.splits = true; }},
    {"", "--read", "N", "bench: tokens that are read before others are written [64]",
     [](Arguments& a, const Given& g) {
       a.coreml.read = whole(g, "the number of tokens to read", 1, std::int64_t{1} << 20);
       a.coreml.read_given = true;
     }},
    {"-o", "--out", "PATH", "export: the package, or with --per-layer and --chunks the folder of packages",
     [](A& a, const G& g) { a.out = path_of(g); }},
    {"", "--per-layer", "", "export: a package for each layer, one for the embedding, one for the head",
     [](A& a, const G& g) { choose_parts(a, g, CoremlExport::kEveryLayer); }},
    {"", "--chunks", "N", "export: the layers in N packages, the embedding and the head in two more",
     [](A& a, const G& g) {
       choose_parts(a, g, static_cast<int>(whole(g, "the number of chunks", 1, 4096)));
     }},
    {"", "--tokens", "SIZES", "export: tokens in a call: a range, 1..4, or a list, 1,64 [1..4]",
     choose_tokens},
    {"", "--slots", "S", "export: positions that a state holds [2048, or what the model has learned]",
     [](A& a, const G& g) {
       a.coreml.how.slots = whole(g, "the number of slots", 1, std::int64_t{1} << 20);
       a.coreml.changes_export = true;
     }},
    {"", "--int8", "SCALES", "export: weights as int8 with a scale for each tensor or channel",
     [](A& a, const G& g) {
       choose_weights(a, g,
                      one_of<CoremlWeights>(g, "scales",
                                            {{"tensor", CoremlWeights::int8_tensor},
                                             {"channel", CoremlWeights::int8_channel}}));
     }},
    {"", "--int4", "32", "export: weights as int4 with a scale for 32 of a row",
     [](A& a, const G& g) {
       whole(g, "the size of a block", 32, 32);
       choose_weights(a, g, CoremlWeights::int4);
     }},
    {"", "--replace", "", "export: a package or folder of packages that is there already gives way",
     [](A& a, const G&) { a.coreml.how.replace = a.coreml.changes_export = true; }},
};

constexpr std::string_view kCoremlUsage =
    "kvtide coreml inspect|lint|run|bench PACKAGE [flags], or kvtide coreml export -m MODEL -o PATH [flags]";

void check_export(const Arguments& a) {
  if (a.coreml.action != "export") {
    if (!a.model.empty() || !a.out.empty() || a.coreml.changes_export)
      refuse(
          "-m, -o, --per-layer, --chunks, --tokens, --slots, --int8, --int4 and --replace: kvtide coreml "
          "export "
          "takes them");
    return;
  }
  if (!a.coreml.package.empty())
    refuse(cat("kvtide coreml export takes no ", quoted(a.coreml.package), ": ", kCoremlUsage));
  if (a.model.empty()) refuse(cat("-m MODEL is missing: ", kCoremlUsage));
  if (a.out.empty()) refuse(cat("-o PATH is missing: ", kCoremlUsage));
  if (!a.coreml.tokenizer.empty()) refuse("--tokenizer: kvtide coreml lint and run take it");
}

void check_run(const Arguments& a) {
  const bool prompts = a.prompt || a.file;
  if (a.coreml.action != "run") {
    const bool bench = a.coreml.action == "bench";
    if (prompts || !a.coreml.ids.empty() || (!bench && (a.coreml.chunk > 0 || a.max_tokens)))
      refuse("-p, -f, --ids, -n and --chunk: kvtide coreml run takes them; bench takes -n and --chunk");
    if (!a.coreml.load.empty() || !a.coreml.save.empty())
      refuse("--load-state and --save-state: kvtide coreml run takes them");
    return;
  }
  if (a.coreml.load.empty() && a.coreml.tokenizer.empty() == a.coreml.ids.empty())
    refuse("kvtide coreml run wants either --tokenizer FOLDER and a text (-p, -f) or --ids 1,2,3");
  if (!a.coreml.tokenizer.empty() && !a.coreml.ids.empty()) refuse("--tokenizer and --ids: use one of them");
  if (prompts && a.coreml.tokenizer.empty()) refuse("a text needs --tokenizer FOLDER");
}

}  // namespace

FlagGroup coreml_flags() { return {Section::basics, kCoreml}; }

void check_coreml_request(const Arguments& a) {
  const CoremlRequest& request = a.coreml;
  constexpr std::string_view kActions[] = {"inspect", "lint", "run", "export", "bench"};
  if (std::find(std::begin(kActions), std::end(kActions), request.action) == std::end(kActions))
    refuse(cat("kvtide coreml: ",
               request.action.empty() ? "say what to do" : "there is no action " + quoted(request.action),
               ": ", kCoremlUsage));
  check_export(a);
  if (request.package.empty() && request.action != "export")
    refuse(cat("PACKAGE is missing: ", kCoremlUsage));
  if (request.mil && request.action != "inspect") refuse("--mil: kvtide coreml inspect takes it");
  if (request.splits && request.action != "lint") refuse("--run: kvtide coreml lint takes it");
  if (request.read_given && request.action != "bench") refuse("--read: kvtide coreml bench takes it");
  if (!request.tokenizer.empty() && (request.action == "inspect" || request.action == "bench"))
    refuse("--tokenizer: kvtide coreml lint and run take it");
  check_run(a);
  if (request.mil && a.json) refuse("--mil and --json: MIL is text; use one of them");
}

}  // namespace kvtide
