// kvtide recall: whether a memory finds again what stood far back: a grid of depths and lengths, with a full
// cache beside each cell.
#include <algorithm>

#include "base/json/json.h"
#include "base/text.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/interrupt.h"
#include "cli/commands/loading.h"
#include "cli/optional/comparison.h"
#include "cli/optional/optional_actions.h"
#include "cli/optional/ppl_against.h"
#include "cli/output/columns.h"
#include "cli/output/progress.h"
#include "cli/output/session_words.h"
#include "cli/output/terminal.h"
#include "eval/compare.h"
#include "eval/control.h"
#include "eval/recall.h"

namespace kvtide {
namespace {

// What one memory answered to the questions of one text.
struct Answers {
  double key = 0.0, pairs = 0.0;  // -ln p per token
  bool key_right = false;
  std::int64_t pairs_right = 0;
};

Answers answers_of(const Comparison& comparison, std::int64_t session, const RecallText& text) {
  Answers a;
  a.key = comparison.probe(session, text.key);
  a.key_right = comparison.foreseen(session, text.key);
  for (const PosRange& pair : text.pairs) {
    a.pairs += comparison.probe(session, pair) / static_cast<double>(text.pairs.size());
    a.pairs_right += comparison.foreseen(session, pair);
  }
  return a;
}

struct Cell {
  std::int64_t length = 0, depth = 0, needles = 0;
  Pos position = 0;
  Answers full, policy;
  // The control shows nothing: what it cannot answer with everything at hand says nothing about a memory.
  bool key_control_fails() const { return !full.key_right; }
  bool pairs_control_fails() const { return 2 * full.pairs_right < needles; }
};

std::string key_text(const Answers& a) {
  return cat(a.key_right ? "right " : "wrong ", number_text(a.key, 2));
}
std::string pairs_text(const Answers& a, std::int64_t needles) {
  return cat(a.pairs_right, " of ", needles, "  ", number_text(a.pairs, 2));
}

Json answers_json(const Answers& a) {
  Json json = Json::object();
  json.set("key_right", a.key_right)
      .set("key_nll", a.key)
      .set("pairs_right", a.pairs_right)
      .set("pairs_nll", a.pairs);
  return json;
}

Json cell_json(const Cell& cell) {
  Json json = Json::object();
  json.set("ctx", cell.length)
      .set("depth", cell.depth)
      .set("position", cell.position)
      .set("pairs", cell.needles)
      .set("full", answers_json(cell.full))
      .set("policy", answers_json(cell.policy))
      .set("key_control_fails", cell.key_control_fails())
      .set("pairs_control_fails", cell.pairs_control_fails());
  return json;
}

std::vector<std::string> cell_row(const Cell& cell) {
  return {count_text(cell.length),
          cat(cell.depth, "%"),
          key_text(cell.full),
          cell.key_control_fails() ? "control fails" : key_text(cell.policy),
          pairs_text(cell.full, cell.needles),
          cell.pairs_control_fails() ? "control fails" : pairs_text(cell.policy, cell.needles)};
}

}  // namespace

int recall_command(const Arguments& arguments) {
  const std::vector<std::int64_t>& lengths = arguments.lengths;
  const Model model = load_model(arguments.model, arguments);
  const std::vector<TokenId> filler =
      filler_for(arguments, model, *std::max_element(lengths.begin(), lengths.end()));
  const auto text_of = [&](std::int64_t length, std::int64_t depth, std::uint64_t seed) {
    return plant_recall(model.tokenizer(), filler,
                        {length, static_cast<double>(depth) / 100.0, arguments.needles, seed});
  };
  for (const std::int64_t length : lengths) text_of(length, 0, 1);  // refused before anything is read
  const HeadTable heads = heads_for(arguments, model);

  Progress progress("recall");
  const double total = static_cast<double>(arguments.depth_list.size());
  double whole = 0.0, done = 0.0;
  for (const std::int64_t length : lengths) whole += static_cast<double>(length) * total;
  std::vector<std::vector<std::string>> table = {
      {"tokens", "depth", "key: full", "this", "pairs: full", "this"}};
  Json cells = Json::array(), policies = Json::array();
  std::uint64_t seed = 1;
  for (const std::int64_t length : lengths) {
    const SessionOptions control = full_cache(model, policy_for(arguments, model, heads, length), length);
    Session full(model, control), policy(model, policy_for(arguments, model, heads, length));
    const std::string words = memory_words(policy);
    say(cat(count_text(length), " tokens: ", words.empty() ? "everything is kept" : words, "; against ",
            control_words(control)));
    for (const std::int64_t depth : arguments.depth_list) {
      const RecallText text = text_of(length, depth, seed++);
      full.clear();
      policy.clear();
      CompareOptions options;
      options.probes = text.asked();
      options.score_from = length;
      options.kl_every = length + 1;
      options.progress = [&](std::int64_t read, std::int64_t) {
        progress.update((done + static_cast<double>(read)) / whole);
        return !interrupted();
      };
      Session* both[] = {&full, &policy};
      const Comparison comparison = compare(both, text.tokens, options);
      done += static_cast<double>(length);
      const Cell cell{length,
                      depth,
                      arguments.needles,
                      text.position,
                      answers_of(comparison, 0, text),
                      answers_of(comparison, 1, text)};
      table.push_back(cell_row(cell));
      cells.push(cell_json(cell));
    }
    Json item = Json::object();
    item.set("ctx", length)
        .set("policy", words)
        .set("control", control_words(control))
        .set("kv_bytes", policy.memory().kv)
        .set("full_kv_bytes", full.memory().kv);
    policies.push(std::move(item));
  }
  if (!arguments.json) {
    write_result(cat(columns_text(table),
                     "-ln p per token of the answer; right: greedy decoding writes it. The control "
                     "fails when it misses the key, or more than half of the pairs.\n"));
    return kExitFine;
  }
  Json json = Json::object();
  json.set("model", model.name()).set("memories", std::move(policies)).set("cells", std::move(cells));
  write_result(json.text() + "\n");
  return kExitFine;
}

}  // namespace kvtide
