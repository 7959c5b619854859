// common_flags.cpp: the flags that many commands take: the model, the text, speed, what is printed.
#include "cli/arguments/flag_groups.h"
#include "cli/arguments/flag_values.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

constexpr Flag kModel[] = {
    {"-m", "--model", "FILE", "the model: a GGUF file (of a split one the first part) or a folder",
     [](A& a, const G& g) {
       a.model = g.value;
       a.models.push_back(g.value);
     }},
};
constexpr Flag kMapping[] = {
    {"", "--no-mmap", "", "copy the file into memory instead of mapping it",
     [](A& a, const G&) { a.loading.map_file = false; }},
};
constexpr Flag kWeights[] = {
    {"", "--no-cache", "", "keep no packed weights and no hashes of model files between runs",
     [](A& a, const G&) { a.memory.no_cache = true; }},
    {"", "--packed", "FILE",
     "packed weights that `kvtide pack` made; a copy of the model may be newer than they are",
     [](A& a, const G& g) { a.loading.packed.file = path_of(g); }},
    {"", "--packed-limit", "SIZE", "of all packed weights in the cache folder: the longest unused go [32G]",
     [](A& a, const G& g) { a.loading.packed.limit = bytes(g, "the limit of the packed weights", 0); }},
    {"", "--packed-verify", "", "compare the sums of packed weights at this start, too",
     [](A& a, const G&) { a.loading.packed.verify = true; }},
};
constexpr Flag kPrompt[] = {
    {"-p", "--prompt", "TEXT", "the prompt; with -f the question about that document",
     [](A& a, const G& g) { set_once(a.prompt, g); }},
};
constexpr Flag kText[] = {
    {"", "--no-bos", "", "do not begin with the vocabulary's start token",
     [](A& a, const G&) { a.no_bos = true; }},
    {"", "--no-special", "", "markers such as <|im_end|> in the text are plain text",
     [](A& a, const G&) { a.no_special = true; }},
};
constexpr Flag kFile[] = {
    {"-f", "--file", "FILE", "read the text from a file; - is stdin, also used without -p and -f",
     [](A& a, const G& g) { set_once(a.file, g); }},
    {"", "--text-newlines", "", "read lines that end in CR LF as LF, and no byte order mark",
     [](A& a, const G&) { a.text_newlines = true; }},
};
constexpr Flag kContext[] = {
    {"-c", "--ctx-size", "N", "tokens of context [as the model was trained]; for ppl: of a chunk [512]",
     [](A& a, const G& g) { a.session.context = whole(g, "the context", 1, kLargestCount); }},
};
constexpr Flag kExact[] = {
    {"", "--exact", "", "f32 activations instead of 8-bit ones: slower, nearer to the ideal",
     [](A& a, const G&) { a.session.exact = true; }},
};
constexpr Flag kThreads[] = {
    {"-t", "--threads", "N", "changes speed only [as many as the machine has]",
     [](A& a, const G& g) {
       a.session.threads = a.loading.threads = static_cast<int>(whole(g, "the number of threads", 1, 256));
     }},
};
constexpr Flag kChunk[] = {
    {"", "--prefill-chunk", "N", "tokens per forward pass while reading, changes speed only [512]",
     [](A& a, const G& g) { a.session.prefill_chunk = whole(g, "the prefill chunk", 1, 65536); }},
};
constexpr Flag kKernels[] = {
    {"", "--kernels", "NAME", "kernels that `kvtide version` lists [the best], changes speed only",
     [](A& a, const G& g) { a.session.kernels = g.value; }},
};
constexpr Flag kOut[] = {
    {"-o", "--out", "FILE", "the file to write [state: the snapshot itself]",
     [](A& a, const G& g) { a.out = g.value; }},
};
constexpr Flag kJson[] = {
    {"", "--json", "", "print JSON", [](A& a, const G&) { a.json = true; }},
};
constexpr Flag kModelsFolder[] = {
    {"", "--dir", "FOLDER", "where the models lie [$KVTIDE_MODELS, or kvtide/models in the cache folder]",
     [](A& a, const G& g) { a.folder = path_of(g); }},
};
constexpr Flag kHelp[] = {
    {"-h", "--help", "", "show this", [](A& a, const G&) { a.help = true; }},
};

}  // namespace

FlagGroup model_flags() { return {Section::basics, kModel}; }
FlagGroup mapping_flags() { return {Section::speed, kMapping}; }
FlagGroup weights_flags() { return {Section::speed, kWeights}; }
FlagGroup prompt_flags() { return {Section::basics, kPrompt}; }
FlagGroup text_flags() { return {Section::words, kText}; }
FlagGroup file_flags() { return {Section::basics, kFile}; }
FlagGroup context_flags() { return {Section::basics, kContext}; }
FlagGroup exact_flags() { return {Section::memory, kExact}; }
FlagGroup thread_flags() { return {Section::speed, kThreads}; }
FlagGroup chunk_flags() { return {Section::speed, kChunk}; }
FlagGroup kernel_flags() { return {Section::speed, kKernels}; }
FlagGroup out_flags() { return {Section::basics, kOut}; }
FlagGroup json_flags() { return {Section::output, kJson}; }
FlagGroup help_flags() { return {Section::output, kHelp}; }
FlagGroup models_folder_flags() { return {Section::basics, kModelsFolder}; }

}  // namespace kvtide
