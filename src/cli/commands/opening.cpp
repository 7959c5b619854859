#include "cli/commands/opening.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "base/file.h"
#include "base/local_time.h"
#include "base/text.h"
#include "cli/arguments/memory_options.h"
#include "cli/commands/choose_heads.h"
#include "cli/commands/interrupt.h"
#include "cli/commands/loading.h"
#include "cli/output/kv_cost.h"
#include "cli/output/session_words.h"
#include "cli/output/terminal.h"
#include "engine/session_spec.h"
#include "kernels/kernels.h"
#include "kvtide/error.h"
#include "model/loaded_model.h"
#include "state/snapshot.h"
#include "text/chat/before_user.h"

namespace kvtide {
namespace {

// The positions that the chat template puts before the first message of the user (--kv-pin system). Throws
// Error(invalid_argument) when there is no template.
PosRange system_positions(const Arguments& a, const Model& model) {
  const ChatTemplate chat = choose_template(model, a);
  const ChatRender render{.now = local_time()};
  const auto opening = ids_before_user([&](std::string_view user) {
    std::vector<ChatMessage> messages;
    if (a.system) messages.push_back({"system", *a.system});
    messages.push_back({"user", std::string(user)});
    EncodeOptions options;
    if (a.no_bos) options.add_bos = false;
    return encode_chat(model.tokenizer(), chat.render(messages, render), options);
  });
  if (opening.empty())
    throw Error(ErrorCode::invalid_argument,
                "--kv-pin system: this template puts nothing before the first message");
  return {0, static_cast<Pos>(opening.size())};
}

// For how long a text a budget is planned: what a snapshot that is gone on from was planned for, or what is known of the
// text; 0: no end.
std::int64_t expected_tokens(const Arguments& arguments, const Model& model,
                             const OpenModel::Expected& expected) {
  const std::string& path = arguments.memory.load_state;
  if (path.empty()) return expected ? expected(model) : 0;
  PosixFiles files;
  const auto procedural = read_snapshot_front(files, path).image.spec.procedural;
  return procedural ? procedural->budget_for : 0;
}

SessionOptions options_for(const Arguments& arguments, const Model& model, std::int64_t context,
                           const OpenModel::Expected& expected) {
  SessionOptions options = memory_options(arguments, context, model.context_length());
  if (options.procedural) {
    if (options.procedural->budget > 0 && options.procedural->budget_for == 0)
      options.procedural->budget_for = expected_tokens(arguments, model, expected);
    options.procedural->heads = choose_heads(arguments, model);
    if (arguments.memory.procedural.pin_system)
      options.procedural->pins = {system_positions(arguments, model)};
  }
  return options;
}

// The smallest budget, in steps of two from 64M on, that this model can be held to; 0: there is none.
std::int64_t usable_budget(const Session& session) {
  SessionOptions options = session.options();
  options.rolling.reset();
  options.attention_size.reset();
  options.auto_attention.reset();
  for (std::int64_t budget = std::int64_t{64} << 20; budget <= std::int64_t{4} << 30; budget *= 2) {
    options.procedural = ProceduralOptions{};
    options.procedural->budget = budget;
    try {
      static_cast<void>(completed(session.model().internals().config, options));
      return budget;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument) return 0;
    }
  }
  return 0;
}

// What would hold a text of so many tokens, and what that costs. A context that the model was not trained for, or that
// this machine cannot hold, is no advice.
std::string ways_to_hold(const Session& session, std::int64_t tokens) {
  const std::int64_t all = full_cache_bytes(session, tokens);
  const double machine =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  const bool holds_all = static_cast<double>(all + session.memory().weights) < 0.8 * machine;
  std::string ways;
  if (tokens <= session.model().context_length() && holds_all)
    ways = cat("-c ", tokens, " holds all of it in ", bytes_text(all));
  if (const std::int64_t budget = usable_budget(session); budget > 0)
    ways +=
        cat(ways.empty() ? "" : "; ", "--kv-budget ", budget >> 20,
            "M holds a text of any length in at most ", bytes_text(budget), ", the older part as summaries",
            ways.empty() ? cat(" (all of it would take ", bytes_text(all), ")") : "");
  return ways.empty() ? "use a shorter text" : ways;
}

// "Gemma 3 270M Base", "gemma-3-270m-pt".
bool calls_itself_base(std::string_view name) {
  std::string word;
  for (std::size_t i = 0; i <= name.size(); ++i) {
    const auto letter = static_cast<unsigned char>(i < name.size() ? name[i] : ' ');
    if (std::isalnum(letter) != 0) {
      word += static_cast<char>(std::tolower(letter));
      continue;
    }
    if (word == "base" || word == "pt" || word == "pretrained") return true;
    word.clear();
  }
  return false;
}

}  // namespace

OpenModel::OpenModel(const Arguments& arguments, std::int64_t context, const Expected& expected)
    : model(load_model(arguments.model, arguments, context)),
      session(model, options_for(arguments, model, context, expected)) {
  load_seconds = watch.seconds();
  stop_if_interrupted("stopped while loading; nothing was read or written");
}

std::string OpenModel::headline(bool everything) const {
  const SessionOptions& o = session.options();
  const std::string words = everything ? memory_words(session) : short_memory_words(session);
  const char* kernels = o.kernels.empty() ? best_kernels().isa : o.kernels.c_str();
  return cat(quoted(model.title()), ": ", model.architecture(), ", ", count_text(model.parameters()),
             " parameters, ", bytes_text(model.weights_bytes()), " of weights, loaded in ",
             time_text(load_seconds), "; ", kernels, ", ", o.threads,
             o.threads == 1 ? " thread, " : " threads, ", o.exact ? "exact, " : "", "context ",
             o.procedural ? "of any length" : count_text(most_held(session)), words.empty() ? "" : "; ",
             words);
}

void ContextGuard::before_reading(std::int64_t tokens) {
  const std::int64_t trained = session_.model().context_length();
  std::int64_t end = session_.rows() + tokens;
  if (tokens > session_.room() && !makes_room_)
    throw Error(
        ErrorCode::context_full,
        cat("the text does not fit: ", count_text(tokens), " tokens, where ",
            session_.rows() == 0 ? cat("the context holds ", count_text(session_.context()))
                                 : cat("the context has room for ", count_text(session_.room()), " more"),
            "; ", ways_to_hold(session_, end)));
  // How far a token looks back is what the model was or was not trained for.
  if (makes_room_) end = std::min(end, session_.context());
  if (session_.options().procedural) return;  // distances stay within what the model knows
  if (session_.options().rolling) end = std::min(end, most_held(session_));
  if (const auto size = session_.attention_size()) end = std::min(end, *size);
  if (end <= trained || warned_) return;
  warned_ = true;
  say(cat("warning: this goes beyond the ", count_text(trained),
          " tokens that the model was trained for; its answers may get worse"));
}

ChatTemplate choose_template(const Model& model, const Arguments& arguments) {
  const ChatMarkers markers = ChatMarkers::of(model.tokenizer());
  if (!arguments.chat_template.empty()) return ChatTemplate::named(arguments.chat_template, markers);
  if (model.chat_template().empty())
    throw Error(
        ErrorCode::unsupported,
        cat(model.path(),
            ": brings no chat template, so it was hardly trained to chat; `kvtide run` without "
            "--chat continues a text, --chat-template gemma (or chatml, llama-3, mistral-instruct) tries "
            "all the same"));
  try {
    return ChatTemplate(model.chat_template(), markers);
  } catch (const Error& error) {
    throw Error(error.code(), cat(model.path(), ": ", error.message()));
  }
}

void say_if_it_cannot_chat(const Model& model) {
  const std::string_view why = model.chat_template().empty()     ? "brings no chat template"
                               : calls_itself_base(model.name()) ? "is a base model by its name"
                                                                 : "";
  if (!why.empty())
    say(cat("note: ", quoted(model.title()), " ", why,
            ": it was hardly trained to chat, and continues texts better than it answers (`kvtide run`)"));
}

}  // namespace kvtide
