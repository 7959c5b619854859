// coreml_flags.cpp: the flags of kvtide coreml, and which of its actions takes them.
#include "base/refuse.h"
#include "base/text.h"
#include "cli/arguments/flag_groups.h"
#include "cli/arguments/flag_values.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr Flag kCoreml[] = {
    {"", "--mil", "", "inspect: the program as MIL text instead",
     [](Arguments& a, const Given&) { a.coreml.mil = true; }},
    {"", "--tokenizer", "FOLDER",
     "run: text in and out; lint: compare special ids of config.json and tokenizer.json, too",
     [](Arguments& a, const Given& g) { a.coreml.tokenizer = g.value; }},
    {"", "--ids", "LIST", "run: the prompt as token ids, 1,2,3; ids are printed, too",
     [](Arguments& a, const Given& g) { a.coreml.ids = whole_list(g, "a token id", 0, INT32_MAX); }},
    {"-n", "--predict", "N", "run: tokens to write at most [64]",
     [](Arguments& a, const Given& g) {
       a.max_tokens = whole(g, "the number of tokens to write", 1, std::int64_t{1} << 20);
     }},
    {"", "--chunk", "N", "run: tokens of the prompt in a call at most [all that the package takes]",
     [](Arguments& a, const Given& g) {
       a.coreml.chunk = whole(g, "the number of tokens", 1, std::int64_t{1} << 20);
     }},
};

constexpr std::string_view kUsage = "kvtide coreml inspect|lint|run PACKAGE [flags]";

void check_run(const Arguments& a) {
  const bool prompts = a.prompt || a.file;
  if (a.coreml.action != "run") {
    if (prompts || !a.coreml.ids.empty() || a.coreml.chunk > 0 || a.max_tokens)
      refuse("-p, -f, --ids, -n and --chunk: kvtide coreml run takes them");
    return;
  }
  if (a.coreml.tokenizer.empty() == a.coreml.ids.empty())
    refuse("kvtide coreml run wants either --tokenizer FOLDER and a text (-p, -f) or --ids 1,2,3");
  if (prompts && a.coreml.tokenizer.empty()) refuse("a text needs --tokenizer FOLDER");
}

}  // namespace

FlagGroup coreml_flags() { return {Section::basics, kCoreml}; }

void check_coreml_request(const Arguments& a) {
  const CoremlRequest& request = a.coreml;
  if (request.action != "inspect" && request.action != "lint" && request.action != "run")
    refuse(cat("kvtide coreml: ",
               request.action.empty() ? "say what to do" : "there is no action " + quoted(request.action),
               ": ", kUsage));
  if (request.package.empty()) refuse(cat("PACKAGE is missing: ", kUsage));
  if (request.mil && request.action != "inspect") refuse("--mil: kvtide coreml inspect takes it");
  if (!request.tokenizer.empty() && request.action == "inspect")
    refuse("--tokenizer: kvtide coreml lint and run take it");
  check_run(a);
  if (request.mil && a.json) refuse("--mil and --json: MIL is text; use one of them");
}

}  // namespace kvtide
