// command.h: the commands of the program and their names.
#pragma once

#include <string_view>

namespace kvtide {

enum class Command : unsigned {
  run,
  chat,
  ppl,
  bench,
  inspect,
  tokenize,
  logits,
  state,
  heads,
  copytest,
  recall,
  ruler,
  table,
  plan,
  shard,
  coreml,
  validate,
  fetch,
  models,
  pack,
  serve
};

struct CommandInfo {
  Command command;
  std::string_view name;
  std::string_view what;     // one line for --help
  std::string_view usage;    // behind "kvtide <name>"
  std::string_view example;  // the same, as someone would type it
};

inline constexpr CommandInfo kCommands[] = {
    {Command::run, "run", "read a prompt and continue it", "-m MODEL [-p TEXT] [-f FILE] [flags]",
     "-m model.gguf -f book.txt -p \"Pierre is the son of\" --report figures.json"},
    {Command::chat, "chat", "talk with a model; earlier turns stay in its memory", "-m MODEL [flags]",
     "-m model.gguf --system \"Be brief.\""},
    {Command::ppl, "ppl", "perplexity of a text", "-m MODEL -f FILE [flags]",
     "-m model.gguf -f text.txt -c 512 --chunks 40"},
    {Command::bench, "bench", "speed at several depths, as a share of the machine's limits",
     "-m MODEL [flags]", "-m model.gguf -p 512 -n 64 -d 0,4096"},
    {Command::inspect, "inspect", "what a model file holds and what its memory would cost",
     "FILE [-v] [--json]", "model.gguf"},
    {Command::tokenize, "tokenize", "the tokens of a text", "-m MODEL [-p TEXT | -f FILE] [flags]",
     "-m model.gguf -p \"Hello\" --json"},
    {Command::logits, "logits", "write the logits of a text as a NumPy file",
     "-m MODEL [-p TEXT | -f FILE] --out F.npy", "-m model.gguf -p \"Hello\" --all --out logits.npy"},
    {Command::state, "state", "look at snapshots, resize them, hand them on",
     "info|diff|truncate|compact|expand|export|import FILE [flags]", "info book.kv"},
    {Command::heads, "heads", "which heads copy from the past: the table of a procedural memory",
     "-m MODEL [--out FILE]", "-m model.gguf --out heads.tsv"},
    {Command::copytest, "copytest", "how well random strings far back are continued",
     "-m MODEL [-f FILE] [--ctx N] [flags]", "-m model.gguf -f book.txt --ctx 8192 --kv-preset balanced"},
    {Command::recall, "recall", "a pass key and random pairs: what is found again, by depth and length",
     "-m MODEL [-f FILE] [--ctx LIST] [--depth LIST] [flags]",
     "-m model.gguf --ctx 4096,8192 --depth 10,50,90 --kv-preset balanced"},
    {Command::ruler, "ruler", "things to find, follow and count, asked for at the end of a text",
     "-m MODEL [-f FILE] [--ctx LIST] [--tasks LIST] [--ratios LIST] [--samples N] [flags]",
     "-m model.gguf -f book.txt --ctx 4096 --ratios 2,4,8,16 --samples 20"},
    {Command::table, "table", "models x lengths x memories: bytes, speed, loss, recall; can be interrupted",
     "-m MODEL [-m MODEL ...] -f FILE --out FOLDER [flags]",
     "-m model.gguf -f book.txt --ctx 8192 --presets minimal,balanced --budgets 48M --out figures"},
    {Command::plan, "plan", "what a procedural memory would take and how fast it could be, for any model",
     "-m MODEL | --like NAME | --layers N --kv-heads N --head-dim N  --ctx N [flags]",
     "--like mistral-7b --ctx 100000 --budget 1G"},
    {Command::shard, "shard", "split a model into files that run on their own, and run them",
     "export -m MODEL -o FOLDER | run -m FOLDER -p TEXT  [flags]",
     "run -m shards -p \"The sea is\" -n 64 --draft ngram"},
    {Command::coreml, "coreml", "what a Core ML package holds, gets wrong and writes, without a Mac",
     "inspect|lint|run|bench PACKAGE | export -m MODEL -o PACKAGE  [flags]",
     "run model.mlpackage --tokenizer model -p \"The sea is\""},
    {Command::validate, "validate", "a model against a reference, layer by layer: what is wrong, and where",
     "MODEL [--reference FOLDER] [--tokens N] [--chunks LIST] [flags]", "model.gguf --html report.html"},
    {Command::fetch, "fetch", "download a small model to try: smollm2 or gemma3",
     "smollm2|gemma3|all [--dir FOLDER]", "smollm2"},
    {Command::models, "models", "the models that were fetched, and what they would cost",
     "[--dir FOLDER] [--json]", "--json"},
    {Command::pack, "pack", "pack a model's weights ahead, so that even its first start takes a moment",
     "MODEL [-o FILE]", "model.gguf -o model.gguf.packed"},
    {Command::serve, "serve", "a server for the clients of OpenAI, Anthropic and llama.cpp",
     "-m MODEL [-m NAME=MODEL ...] [flags]", "-m smollm2 --kv-budget 2G --port 8080"},
};

constexpr const CommandInfo& command_info(Command command) {
  return kCommands[static_cast<unsigned>(command)];
}

}  // namespace kvtide
