// kvtide copytest: how well random strings are continued when they come up again far behind: through the
// memory of the flags, a full cache and a plain window of as many bytes.
#include <algorithm>

#include "base/json/json.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/commands/comparison.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/interrupt.h"
#include "cli/commands/ppl_against.h"
#include "cli/output/columns.h"
#include "cli/output/progress.h"
#include "cli/output/session_words.h"
#include "cli/output/terminal.h"
#include "eval/compare.h"
#include "eval/control.h"
#include "eval/planted_text.h"
#include "eval/recall.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::int64_t kTokensOfString = 48;  // planted, and asked for again
enum : std::int64_t { kFull, kPolicy, kPlainWindow };

// -ln p per token of each string through the three memories.
struct Scores {
  double of[3];
};

struct Copies {
  std::vector<Scores> strings;
  Scores mean = {};
  double chance = 0.0;  // of a guess among all plain words
};

Copies score_copies(const Comparison& comparison, const std::vector<Plant>& plants, double chance) {
  Copies copies{.strings = {}, .chance = chance};
  for (const Plant& plant : plants) {
    copies.strings.emplace_back();
    for (std::int64_t s = 0; s < 3; ++s) {
      const double nll = copies.strings.back().of[s] = comparison.probe(s, plant.asked);
      copies.mean.of[s] += nll / static_cast<double>(plants.size());
    }
  }
  return copies;
}

std::string copies_text(const Copies& copies, const std::vector<Plant>& plants) {
  std::vector<std::vector<std::string>> table = {{"string", "tokens back", "full", "this", "window"}};
  for (std::size_t i = 0; i < plants.size(); ++i) {
    const double* nll = copies.strings[i].of;
    table.push_back({plants[i].name, count_text(plants[i].asked.first - plants[i].position),
                     number_text(nll[kFull], 2),
                     nll[kFull] >= copies.chance ? "control fails" : number_text(nll[kPolicy], 2),
                     number_text(nll[kPlainWindow], 2)});
  }
  table.push_back({"mean", "", number_text(copies.mean.of[kFull], 2), number_text(copies.mean.of[kPolicy], 2),
                   number_text(copies.mean.of[kPlainWindow], 2)});
  return columns_text(table);
}

Json copies_json(const Copies& copies, const std::vector<Plant>& plants) {
  Json items = Json::array();
  for (std::size_t i = 0; i < plants.size(); ++i) {
    const double* nll = copies.strings[i].of;
    Json item = Json::object();
    item.set("string", plants[i].name)
        .set("position", plants[i].position)
        .set("back", plants[i].asked.first - plants[i].position)
        .set("full_nll", nll[kFull])
        .set("nll", nll[kPolicy])
        .set("window_nll", nll[kPlainWindow])
        .set("control_fails", nll[kFull] >= copies.chance);
    items.push(std::move(item));
  }
  return items;
}

}  // namespace

int copytest_command(const Arguments& arguments) {
  const Model model(arguments.model, arguments.loading);
  PlantOptions plants;
  plants.keys.clear();
  plants.copies.clear();
  for (const std::int64_t at : arguments.depth_list) plants.copies.push_back(static_cast<double>(at) / 100.0);
  const std::int64_t length = arguments.lengths.front();
  const std::int64_t strings = kTokensOfString * static_cast<std::int64_t>(plants.copies.size());
  if (length <= strings)
    throw Error(ErrorCode::invalid_argument, cat("--ctx: ", plants.copies.size(), " strings need more than ",
                                                 strings, " tokens, not ", length));
  const std::vector<TokenId> filler = filler_for(arguments, model, length - strings);
  const PlantedText text =
      plant(model.tokenizer(), std::span(filler).first(static_cast<std::size_t>(length - strings)), plants);

  const SessionOptions options = policy_for(arguments, model, heads_for(arguments, model), length);
  const SessionOptions control = full_cache(model, options, length);
  const SessionOptions windowed = window_beside(model, options, length);
  Session full(model, control), policy(model, options), window(model, windowed);
  const std::string words = memory_words(policy);
  say(cat(words.empty() ? "everything is kept" : words, "; against ", control_words(control), " and ",
          window_words(windowed)));
  Progress progress("copytest", policy);
  CompareOptions compared;
  for (const Plant& plant : text.plants) compared.probes.push_back(plant.asked);
  compared.score_from = compared.kl_every = length + 1;
  compared.progress = [&](std::int64_t done, std::int64_t total) {
    progress.update(done, total);
    return !interrupted();
  };
  Session* all[] = {&full, &policy, &window};
  const Comparison comparison = compare(all, text.tokens, compared);

  const Copies copies = score_copies(comparison, text.plants, word_chance(model.tokenizer()));
  if (!arguments.json) {
    write_result(cat(copies_text(copies, text.plants),
                     "-ln p per token; a guess among all plain words costs ", number_text(copies.chance, 2),
                     ". KV: full ", bytes_text(full.memory().kv), ", this ", bytes_text(policy.memory().kv),
                     ", window ", bytes_text(window.memory().kv), "\n"));
    return kExitFine;
  }
  Json json = Json::object();
  json.set("model", model.name())
      .set("ctx", length)
      .set("policy", words)
      .set("control", control_words(control))
      .set("window", window_words(windowed))
      .set("kv_bytes", policy.memory().kv)
      .set("full_kv_bytes", full.memory().kv)
      .set("window_kv_bytes", window.memory().kv)
      .set("chance", copies.chance)
      .set("full_nll", copies.mean.of[kFull])
      .set("nll", copies.mean.of[kPolicy])
      .set("window_nll", copies.mean.of[kPlainWindow])
      .set("strings", copies_json(copies, text.plants));
  write_result(json.text() + "\n");
  return kExitFine;
}

}  // namespace kvtide
