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

  const double chance = word_chance(model.tokenizer());
  std::vector<std::vector<std::string>> table = {{"string", "tokens back", "full", "this", "window"}};
  Json items = Json::array();
  double means[3] = {};
  for (const Plant& plant : text.plants) {
    double nll[3];
    for (std::int64_t s = 0; s < 3; ++s) {
      nll[s] = comparison.probe(s, plant.asked);
      means[s] += nll[s] / static_cast<double>(text.plants.size());
    }
    const bool fails = nll[kFull] >= chance;
    const Pos back = plant.asked.first - plant.position;
    table.push_back({plant.name, count_text(back), number_text(nll[kFull], 2),
                     fails ? "control fails" : number_text(nll[kPolicy], 2),
                     number_text(nll[kPlainWindow], 2)});
    Json item = Json::object();
    item.set("string", plant.name)
        .set("position", plant.position)
        .set("back", back)
        .set("full_nll", nll[kFull])
        .set("nll", nll[kPolicy])
        .set("window_nll", nll[kPlainWindow])
        .set("control_fails", fails);
    items.push(std::move(item));
  }
  table.push_back({"mean", "", number_text(means[kFull], 2), number_text(means[kPolicy], 2),
                   number_text(means[kPlainWindow], 2)});
  if (!arguments.json) {
    write_result(cat(columns_text(table), "-ln p per token; a guess among all plain words costs ",
                     number_text(chance, 2), ". KV: full ", bytes_text(full.memory().kv), ", this ",
                     bytes_text(policy.memory().kv), ", window ", bytes_text(window.memory().kv), "\n"));
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
      .set("chance", chance)
      .set("full_nll", means[kFull])
      .set("nll", means[kPolicy])
      .set("window_nll", means[kPlainWindow])
      .set("strings", std::move(items));
  write_result(json.text() + "\n");
  return kExitFine;
}

}  // namespace kvtide
