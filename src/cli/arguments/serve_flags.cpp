// serve_flags.cpp: the flags of kvtide serve.
#include <filesystem>

#include "cli/arguments/flag_groups.h"
#include "cli/arguments/flag_values.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

constexpr Flag kServe[] = {
    {"", "--host", "ADDRESS", "where to listen; others than loopback need --api-key [127.0.0.1]",
     [](A& a, const G& g) { a.serve.host = g.value; }},
    {"", "--port", "N", "0: one that is free [8080]",
     [](A& a, const G& g) { a.serve.port = whole(g, "the port", 0, 65535); }},
    {"", "--api-key", "KEY", "what clients have to send; also from $KVTIDE_API_KEY",
     [](A& a, const G& g) { a.serve.api_key = g.value; }},
    {"", "--insecure-no-auth", "", "let anybody who reaches --host use the models",
     [](A& a, const G&) { a.serve.no_auth = true; }},
    {"", "--parallel", "N", "answers that are written at once [8]",
     [](A& a, const G& g) { a.serve.parallel = whole(g, "the number of answers", 1, 256); }},
    {"", "--queue", "N", "requests that wait; further ones are told to come again (429) [64]",
     [](A& a, const G& g) { a.serve.queue = whole(g, "the length of the queue", 0, 65536); }},
    {"-n", "--max-tokens", "N", "of answers whose request does not say [2048]",
     [](A& a, const G& g) { a.serve.max_tokens = whole(g, "the number of tokens", 1, kLargestCount); }},
    {"", "--chat-template", "NAME", "chatml, llama-3, gemma or mistral-instruct [as the model says]",
     [](A& a, const G& g) { a.chat_template = g.value; }},
    {"", "--slot-save-path", "FOLDER", "where /slots saves and restores memories, by names [nowhere]",
     [](A& a, const G& g) { a.serve.states_folder = path_of(g); }},
    {"", "--cache-dir", "FOLDER", "where prefixes and stored answers outlive the server [nowhere]",
     [](A& a, const G& g) { a.serve.cache_folder = path_of(g); }},
    {"", "--cache-bytes", "BYTES", "of the prefixes in that folder [4G]",
     [](A& a, const G& g) { a.serve.cache_bytes = bytes(g, "the size of the cache", 1 << 20); }},
    {"", "--idle-spill", "SECONDS", "prefixes that were not used for so long leave the memory for the folder",
     [](A& a, const G& g) { a.serve.idle_spill = real(g, "the time", 1, 1e9); }},
    {"", "--idle-unload", "SECONDS",
     "weights of models that were not used for so long leave the memory for their files",
     [](A& a, const G& g) { a.serve.idle_unload = real(g, "the time", 1, 1e9); }},
    {"", "--quiet", "", "no line for every request", [](A& a, const G&) { a.serve.quiet = true; }},
};
constexpr Flag kServeMemory[] = {
    {"", "--kv-budget", "BYTES", "KV memory of all answers and of the prefixes kept for later [2G]",
     [](A& a, const G& g) { a.serve.kv_budget = bytes(g, "the budget", 1 << 20); }},
    {"", "--session-kv", "KIND",
     "full, rolling=WINDOW, procedural=BYTES or procedural=BYTES,pin=system (exact system messages): of "
     "answers whose request does not say [full]",
     [](A& a, const G& g) { a.serve.session_kv = g.value; }},
};

bool is_word(const std::string& text) {
  constexpr std::string_view kNot = "/\\";
  return !text.empty() && text.find_first_of(kNot) == text.npos;
}

}  // namespace

FlagGroup serve_flags() { return {Section::basics, kServe}; }
FlagGroup serve_memory_flags() { return {Section::memory, kServeMemory}; }

void name_served_models(Arguments& a) {
  for (std::string& model : a.models) {
    const std::size_t equals = model.find('=');
    if (equals != model.npos && is_word(model.substr(0, equals))) {
      a.serve.names.push_back(model.substr(0, equals));
      model.erase(0, equals + 1);
    } else {
      std::string name = std::filesystem::path(model).filename().string();
      if (name.ends_with(".gguf")) name.resize(name.size() - 5);
      a.serve.names.push_back(name);
    }
  }
  if (!a.models.empty()) a.model = a.models[0];
}

}  // namespace kvtide
