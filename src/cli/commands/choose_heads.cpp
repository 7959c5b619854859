#include "cli/commands/choose_heads.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "cli/commands/cache_folder.h"
#include "cli/commands/heads_file.h"
#include "cli/commands/interrupt.h"
#include "cli/output/progress.h"
#include "cli/output/terminal.h"
#include "eval/head_table.h"
#include "kvtide/error.h"
#include "model/identity.h"
#include "model/loaded_model.h"

namespace kvtide {
namespace {

// Where nearly all heads copy, keeping every row of all of them would compress nothing: at most two thirds of
// the heads without a window of their own do, those that copy most.
HeadTable within_two_thirds(HeadTable table, const Model& model) {
  const ModelConfig& config = model.internals().config;
  const auto kept = attention_layers(config);
  const float full_from = ProceduralOptions{}.full_from;
  std::vector<float*> copying;
  std::size_t heads = 0;
  for (std::size_t i = 0; i < table.needs.size(); ++i) {
    const int layer = kept[i / static_cast<std::size_t>(table.kv_heads)];
    if (config.layers[static_cast<std::size_t>(layer)].window) continue;
    ++heads;
    if (table.needs[i].induction >= full_from) copying.push_back(&table.needs[i].induction);
  }
  std::stable_sort(copying.begin(), copying.end(), [](const float* a, const float* b) { return *a > *b; });
  for (std::size_t i = heads * 2 / 3; heads > 1 && i < copying.size(); ++i)
    *copying[i] = std::nextafter(full_from, 0.0f);
  return table;
}

// The hash of the model, and where the table of such a model is remembered; empty: nowhere.
struct Remembered {
  std::string hash, file;
};

Remembered remember(const Arguments& a, const Model& model) {
  const std::string cache = cache_folder(a);
  std::string hash = model_identity(model, cache).at("model");
  std::string file = cache.empty() ? "" : cat(cache, "/heads-", hash, ".tsv");
  return {std::move(hash), std::move(file)};
}

// Without measuring, for the model that `at` is about.
std::optional<HeadTable> known_at(const Remembered& at, const Model& model) {
  if (const HeadTable* known = shipped_heads(at.hash)) return within_two_thirds(*known, model);
  try {
    if (!at.file.empty()) return within_two_thirds(read_heads(at.file), model);
  } catch (const Error&) {
    // Not there, or not what it should be: it is measured again.
  }
  return std::nullopt;
}

// What --kv-heads says itself; nullopt: it depends on the model.
std::optional<HeadTable> said_heads(const Arguments& a) {
  const std::string& wanted = a.memory.procedural.heads;
  if (wanted == "even") return HeadTable{};
  if (wanted != "auto") return read_heads(wanted);
  return std::nullopt;
}

}  // namespace

std::optional<HeadTable> known_heads(const Arguments& a, const Model& model) {
  if (std::optional<HeadTable> said = said_heads(a)) return said;
  return known_at(remember(a, model), model);
}

HeadTable choose_heads(const Arguments& a, const Model& model) {
  if (std::optional<HeadTable> said = said_heads(a)) return std::move(*said);
  const Remembered at = remember(a, model);
  if (std::optional<HeadTable> known = known_at(at, model)) return std::move(*known);
  say("measuring which heads copy from the past (once per model; --kv-heads even does without)");
  HeadTable table;
  try {
    Progress progress("measuring heads");
    table = measure_heads(model, {.threads = a.session.threads, .progress = [&](double share) {
                                    progress.update(share);
                                    return !interrupted();
                                  }});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    say(cat("all heads are treated alike: ", error.what()));
    return {};
  }
  try {
    if (!at.file.empty()) write_heads(at.file, table);
  } catch (const Error&) {
    // A cache only saves time.
  }
  return within_two_thirds(std::move(table), model);
}

}  // namespace kvtide
