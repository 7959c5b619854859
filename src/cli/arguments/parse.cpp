#include "cli/arguments/parse.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "base/nearest.h"
#include "base/refuse.h"
#include "base/text.h"
#include "cli/arguments/flags.h"
#include "cli/arguments/memory_options.h"
#include "cli/arguments/other_names.h"
#include "cli/arguments/state_request.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

std::string hint(std::string_view meant) { return meant.empty() ? "" : cat("; did you mean ", meant, "?"); }

const CommandInfo& find_command(std::string_view word) {
  std::vector<std::string_view> names;
  for (const CommandInfo& info : kCommands) {
    if (info.name == word) return info;
    names.push_back(info.name);
  }
  std::string list;
  for (const std::string_view name : names) list += cat(list.empty() ? "" : ", ", name);
  const std::string_view meant = nearest(word, names);
  refuse(cat("there is no command ", quoted(word), meant.empty() ? cat("; there are ", list) : hint(meant)));
}

bool is_spelling(const Flag& flag, std::string_view word) {
  return word == flag.name || (!flag.short_name.empty() && word == flag.short_name);
}

class Parser {
 public:
  Parser(const std::vector<std::string>& words, Arguments& arguments)
      : words_(words), out_(arguments), flags_(flags_of(arguments.command)) {}

  void parse() {
    while (at_ < words_.size()) {
      const std::string& word = words_[at_++];
      if (word == "--" && !only_names_) {
        only_names_ = true;
      } else if (only_names_ || word.size() < 2 || word[0] != '-') {
        positional(word);
      } else {
        flag(word);
      }
    }
  }

 private:
  void positional(const std::string& word) {
    if ((out_.command == Command::inspect || out_.command == Command::validate ||
         out_.command == Command::pack) &&
        out_.model.empty()) {
      out_.model = word;
      return;
    }
    if (out_.command == Command::state) {
      if (out_.state.action.empty())
        out_.state.action = word;
      else
        out_.state.files.push_back(word);
      return;
    }
    if (out_.command == Command::fetch && out_.fetched.empty()) {
      out_.fetched = word;
      return;
    }
    if (out_.command == Command::shard && out_.shard.action.empty()) {
      out_.shard.action = word;
      return;
    }
    if (out_.command == Command::coreml && (out_.coreml.action.empty() || out_.coreml.package.empty())) {
      (out_.coreml.action.empty() ? out_.coreml.action : out_.coreml.package) = word;
      return;
    }
    const CommandInfo& info = command_info(out_.command);
    refuse(cat("what should ", quoted(word), " be? kvtide ", info.name, " takes ", info.usage, advice(word)));
  }

  // What a word without a flag was most likely meant as.
  std::string advice(const std::string& word) const {
    if (find("--model") == nullptr) return "";
    if (out_.model.empty())
      return cat("; if it is the model: kvtide ", command_info(out_.command).name, " -m ", word);
    return find("--prompt") == nullptr ? "" : "; a prompt stands behind -p, in quotes: -p \"The sea is\"";
  }

  void flag(const std::string& word) {
    // --name=value, or -nVALUE
    const std::size_t equals = word.starts_with("--") ? word.find('=') : word.npos;
    const std::string name = word.substr(0, equals);
    if (const Flag* found = find(name)) {
      if (equals == word.npos) return apply(*found, name);
      if (found->value.empty())
        refuse(cat(name, ": takes no value, but was given ", quoted(word.substr(equals + 1))));
      return found->set(out_, {name, word.substr(equals + 1)});
    }
    // Before values that are joined to their flag: -fa is no file named a.
    if (const std::string_view advice = advice_about(name); !advice.empty())
      refuse(cat("kvtide ", command_info(out_.command).name, " has no flag ", quoted(name), ": ", advice));
    if (!word.starts_with("--"))
      if (const Flag* found = find(word.substr(0, 2)); found != nullptr && !found->value.empty())
        return found->set(out_, {found->short_name, word.substr(2)});
    unknown(name);
  }

  const Flag* find(std::string_view name) const {
    for (const Flag& candidate : flags_)
      if (is_spelling(candidate, name)) return &candidate;
    const std::string_view meant = name_meant(name);
    for (const Flag& candidate : flags_)
      if (!meant.empty() && candidate.name == meant) return &candidate;
    return nullptr;
  }

  void apply(const Flag& flag, const std::string& name) {
    static const std::string kNothing;
    if (flag.value.empty()) return flag.set(out_, {name, kNothing});
    if (at_ == words_.size())
      refuse(cat(name, ": a value is missing: ", name, " ", flag.value, ": ", flag.help));
    flag.set(out_, {name, words_[at_++]});
  }

  [[noreturn]] void unknown(const std::string& name) const {
    const std::string_view command = command_info(out_.command).name;
    std::vector<std::string_view> own;
    std::string others;
    for (const Flag& flag : flags_) {
      own.push_back(flag.name);
      if (!flag.short_name.empty()) own.push_back(flag.short_name);
    }
    for (const CommandInfo& info : kCommands)
      for (const Flag& flag : flags_of(info.command))
        if (is_spelling(flag, name)) others += cat(others.empty() ? "" : ", ", info.name);
    const std::string_view meant = nearest(name, own);
    std::string why = cat("kvtide ", command, " has no flag ", quoted(name));
    if (!others.empty()) why += cat(" (it belongs to ", others, ")");
    refuse(why + (meant.empty() ? cat("; see kvtide ", command, " --help") : hint(meant)));
  }

  const std::vector<std::string>& words_;
  Arguments& out_;
  const std::vector<Flag> flags_;  // of the command
  std::size_t at_ = 1;             // behind the command
  bool only_names_ = false;
};

// A talk is sampled: the likeliest token each time makes small models say the same over and over.
void begin_with(Arguments& a) {
  constexpr float kTemperature = 0.7f, kRepeatPenalty = 1.1f;
  constexpr std::int64_t kCheckpointEvery = 512;
  if (a.command == Command::chat || a.command == Command::serve)
    a.session.checkpoints.every = kCheckpointEvery;
  if (a.command != Command::chat) return;
  a.sampler.temperature = kTemperature;
  a.sampler.repeat_penalty = kRepeatPenalty;
}

// Defaults that differ from command to command.
void fill_in(Arguments& a) {
  if (a.command == Command::serve) name_served_models(a);
  if (a.lengths.empty()) a.lengths = {a.command == Command::plan ? 100000 : 4096};
  const bool procedural = a.command == Command::plan || (a.command == Command::ruler && !a.ratios.empty());
  if (procedural && !a.memory.procedural.on) a.memory.procedural.on = true;
  if (a.presets.empty() && a.budgets.empty()) a.presets = {"balanced"};
  if (!a.depth_list.empty()) return;
  if (a.command == Command::copytest) a.depth_list = {7, 35, 63};
  if (a.command == Command::recall) a.depth_list = {10, 50, 90};
}

// What is written must not take the place of what is read, nor of what else is written.
void check_files(const Arguments& a) {
  const ProceduralFlags& p = a.memory.procedural;
  const std::pair<std::string_view, std::string> files[] = {{"-m", a.model},
                                                            {"-f", a.file.value_or("")},
                                                            {"--load-state", a.memory.load_state},
                                                            {"--out", a.out},
                                                            {"--save-state", a.memory.save_state},
                                                            {"--report", a.report},
                                                            {"--plot", a.plot},
                                                            {"--kv-log", p.log},
                                                            {"--kv-spill", p.chosen.spill}};
  constexpr std::size_t kRead = 3;
  for (std::size_t i = kRead; i < std::size(files); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const auto& [flag, path] = files[i];
      const auto& [other, taken] = files[j];
      const bool saved_again = other == "--load-state" && flag == "--save-state";
      if (path.empty() || path == "-" || path.starts_with("/dev/") || saved_again) continue;
      if (std::filesystem::path(path).lexically_normal() == std::filesystem::path(taken).lexically_normal())
        refuse(cat(other, " and ", flag, ": both are ", path, "; give each its own file"));
    }
}

void check(const Arguments& a) {
  const auto need = [&](bool fine, std::string_view what) {
    if (!fine)
      refuse(cat(what, " is missing: kvtide ", command_info(a.command).name, " ",
                 command_info(a.command).usage));
  };
  check_memory_flags(a);
  if (a.command == Command::state) return check_state_request(a);
  if (a.command == Command::shard) return check_shard_request(a);
  if (a.command == Command::coreml) return check_coreml_request(a);
  if (a.command == Command::fetch) return need(!a.fetched.empty(), "the name of a model");
  if (a.command == Command::models) return;
  check_files(a);
  if (a.command == Command::plan) {
    const bool shape = a.plan.layers && a.plan.kv_heads && a.plan.head_dim;
    need(!a.model.empty() || !a.plan.like.empty() || shape,
         "-m, --like, or --layers with --kv-heads and --head-dim");
    if (!a.model.empty() && (!a.plan.like.empty() || a.plan.layers))
      refuse("-m: the model says its shape itself; leave out --like and --layers");
    if (!*a.memory.procedural.on)
      refuse("--kv-proc off: there is nothing to plan; kvtide inspect tells what a full cache takes");
    return;
  }
  if (!a.rows.empty() && a.plot.empty())
    refuse("--rows: is drawn by --plot FILE; without it nothing happens");
  if (a.command == Command::bench && !a.rows.empty() && a.model.empty()) return;
  if (a.models.size() > 1 && a.command != Command::table && a.command != Command::serve)
    refuse(cat("-m: is given twice, ", quoted(a.models[0]), " and ", quoted(a.models[1]),
               "; only kvtide table and serve take several models"));
  need(!a.model.empty(), a.command == Command::inspect    ? "FILE"
                         : a.command == Command::validate ? "MODEL"
                         : a.command == Command::pack     ? "MODEL"
                                                          : "-m MODEL");
  need(a.command != Command::ppl || a.file, "-f FILE");
  need(a.command != Command::table || a.file, "-f FILE");
  need(a.command != Command::pack || !a.out.empty() || !a.memory.no_cache,
       "-o FILE, which --no-cache asks for,");
  need(a.command != Command::table || !a.out.empty(), "--out FOLDER");
  need(a.command != Command::logits || !a.out.empty(), "--out F.npy");
  if (a.prompt && a.file && a.command != Command::run)
    refuse("-p and -f: one text at a time; only run takes a document and a question");
  if (!a.chat && a.command == Command::run && (a.system || !a.chat_template.empty()))
    refuse(cat(a.system ? "--system" : "--chat-template", ": has a meaning only together with --chat"));
  if (a.command == Command::bench && a.bench_prompt == 0 && a.bench_tokens == 0)
    refuse("-p 0 and -n 0: nothing is left to measure");
  if (a.sessions > 1 && a.session.profile)
    refuse("--sessions and --profile: parts are measured for one session");
  if (a.command == Command::ppl && !a.out.empty() && !a.stream)
    refuse("--out: has a meaning only with --stream");
  if (a.against != Against::nothing && !a.stream) refuse("--against: has a meaning only with --stream");
  if (a.against != Against::nothing && !a.out.empty())
    refuse("--against and --out: a comparison writes no tokens; use one of them");
  if (a.stream && a.chunks > 0)
    refuse("--chunks: --stream reads the text in one pass; use -c to read less of it");
  for (const std::string& stop : a.stop)
    if (stop.empty()) refuse("--stop: the text that ends an answer must not be empty");
}

}  // namespace

Arguments parse_arguments(const std::vector<std::string>& words) {
  Arguments arguments;
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    arguments.help = true;
    arguments.has_command = words.size() > 1;
    if (arguments.has_command) arguments.command = find_command(words[1]).command;
    return arguments;
  }
  if (words[0] == "--version" || words[0] == "version") {
    arguments.version = true;
    return arguments;
  }
  if (words[0].starts_with("-"))
    refuse(cat("a command comes first, not ", quoted(words[0]), ": kvtide run ", words[0],
               " ...; see kvtide --help"));
  arguments.command = find_command(words[0]).command;
  arguments.has_command = true;
  begin_with(arguments);
  Parser(words, arguments).parse();
  fill_in(arguments);
  if (!arguments.help) check(arguments);
  return arguments;
}

}  // namespace kvtide
