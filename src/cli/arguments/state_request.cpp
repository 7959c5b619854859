#include "cli/arguments/state_request.h"

#include <string_view>
#include <vector>

#include "base/nearest.h"
#include "base/refuse.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

struct Action {
  std::string_view name;
  std::size_t files;
  std::string_view usage;
};

constexpr Action kActions[] = {
    {"info", 1, "FILE [--json]"},
    {"diff", 2, "FILE OTHER [--json]"},
    {"truncate", 1, "FILE --length N [--nearest] [--out OTHER]"},
    {"compact", 1, "FILE --capacity N [--out OTHER]"},
    {"expand", 1, "FILE --capacity N [--out OTHER]"},
    {"export", 1,
     "FILE --out F.safetensors|FOLDER [--layout NAME] [--dtype TYPE] [--capacity N] [--exact-only]"},
    {"import", 1, "F.safetensors --like SNAPSHOT --out FILE [--tokens IDS]"},
};

const Action& find_action(const std::string& word) {
  std::vector<std::string_view> names;
  std::string list;
  for (const Action& action : kActions) {
    if (action.name == word) return action;
    names.push_back(action.name);
    list += cat(list.empty() ? "" : ", ", action.name);
  }
  if (word.empty()) refuse(cat("kvtide state: say what to do: ", list));
  const std::string_view meant = nearest(word, names);
  refuse(cat("kvtide state: there is no action ", quoted(word),
             meant.empty() ? cat("; there are ", list) : cat("; did you mean ", meant, "?")));
}

}  // namespace

void check_state_request(const Arguments& a) {
  const StateRequest& request = a.state;
  const Action& action = find_action(request.action);
  const auto need = [&](bool fine, std::string_view what) {
    if (!fine) refuse(cat(what, ": kvtide state ", action.name, " ", action.usage));
  };
  need(request.files.size() >= action.files, action.files == 2 ? "two files are needed" : "FILE is missing");
  if (request.files.size() > action.files)
    refuse(cat("what should ", quoted(request.files[action.files]), " be? kvtide state ", action.name,
               " takes ", action.usage));
  // Flags and the actions that take them.
  const struct {
    bool given;
    std::string_view flag;
    std::vector<std::string_view> actions;
  } rules[] = {
      {a.json, "--json", {"info", "diff"}},
      {!a.out.empty(), "--out", {"truncate", "compact", "expand", "export", "import"}},
      {request.length.has_value(), "--length", {"truncate"}},
      {request.nearest, "--nearest", {"truncate"}},
      {request.capacity.has_value(), "--capacity", {"compact", "expand", "export"}},
      {!request.layout.empty(), "--layout", {"export"}},
      {!request.dtype.empty(), "--dtype", {"export"}},
      {request.exact_only, "--exact-only", {"export"}},
      {!request.like.empty(), "--like", {"import"}},
      {!request.tokens.empty(), "--tokens", {"import"}},
  };
  for (const auto& rule : rules) {
    bool takes = false;
    for (const std::string_view name : rule.actions) takes = takes || name == action.name;
    if (rule.given && !takes)
      refuse(cat("kvtide state ", action.name, " takes no ", rule.flag, ": kvtide state ", action.name, " ",
                 action.usage));
  }
  need(action.name != "truncate" || request.length, "--length is missing");
  need((action.name != "compact" && action.name != "expand") || request.capacity, "--capacity is missing");
  const bool writes_another = action.name == "export" || action.name == "import";
  need(!writes_another || !a.out.empty(), "--out is missing");
  need(action.name != "import" || !request.like.empty(), "--like is missing");
}

}  // namespace kvtide
