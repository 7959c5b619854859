// kvtide copytest: how well random strings are continued when they come up again far behind: through the
// memory of the flags and, unless it is alone, a full cache and a plain window of as many bytes.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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
#include "eval/planted_text.h"
#include "eval/recall.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::int64_t kTokensOfString = 48;                      // planted, and asked for again
enum : std::int64_t { kPolicy, kFull, kPlainWindow, kMemories };  // alone: the first

// How well one string was continued by each memory, as -ln p per token.
struct StringResult {
  std::string name;
  Pos position = 0;
  std::int64_t back = 0;      // tokens from there to the question
  bool window_holds = false;  // it had not left the plain window yet
  double nll[kMemories] = {};
};

std::int64_t rows_of(const SessionOptions& window) { return window.rolling->sinks + window.rolling->window; }

// The memories and the text that they read.
class CopyTest {
 public:
  CopyTest(const Arguments& arguments, const Model& model)
      : arguments_(arguments), model_(model), heads_(heads_for(arguments, model)) {
    plants_.keys.clear();
    plants_.copies.clear();
    for (const std::int64_t at : arguments.depth_list)
      plants_.copies.push_back(static_cast<double>(at) / 100.0);
    strings_ = kTokensOfString * static_cast<std::int64_t>(plants_.copies.size());
    if (length_ <= strings_)
      throw Error(ErrorCode::invalid_argument,
                  cat("--ctx: ", plants_.copies.size(), " strings need more than ", strings_, " tokens, not ",
                      length_));
    filler_ = filler_for(arguments, model, length_ - strings_);
    text_ = plant(model.tokenizer(), std::span(filler_).first(static_cast<std::size_t>(length_ - strings_)),
                  plants_);
    options_ = policy_for(arguments, model, heads_, length_);
    control_ = full_cache(model, options_, length_);
    window_ = window_beside(model, options_, length_);
  }

  void run() {
    std::vector<Session> sessions;
    sessions.emplace_back(model_, options_);
    words_ = memory_words(sessions[kPolicy]);
    const std::string kept = words_.empty() ? "everything is kept" : words_;
    if (arguments_.alone) {
      say(kept);
    } else {
      sessions.emplace_back(model_, control_);
      sessions.emplace_back(model_, window_);
      say(cat(kept, "; against ", control_words(control_), " and ", window_words(window_)));
      say_what_it_cannot_show();
    }
    std::vector<Session*> all;
    for (Session& session : sessions) all.push_back(&session);
    Progress progress("copytest", sessions[kPolicy]);
    CompareOptions compared;
    for (const Plant& plant : text_.plants) compared.probes.push_back(plant.asked);
    compared.score_from = compared.kl_every = length_ + 1;
    compared.progress = [&](std::int64_t done, std::int64_t total) {
      progress.update(done, total);
      return !interrupted();
    };
    const Comparison comparison = compare(all, text_.tokens, compared);
    for (const Plant& plant : text_.plants) {
      StringResult result{plant.name, plant.position, back_of(plant), window_holds(plant), {}};
      for (std::size_t s = 0; s < all.size(); ++s) {
        result.nll[s] = comparison.probe(static_cast<std::int64_t>(s), plant.asked);
        means_[s] += result.nll[s] / static_cast<double>(text_.plants.size());
      }
      results_.push_back(std::move(result));
    }
    for (std::size_t s = 0; s < all.size(); ++s) kv_bytes_[s] = all[s]->memory().kv;
    chance_ = word_chance(model_.tokenizer());
  }

  std::string text() const;
  std::string json() const;

 private:
  static std::int64_t back_of(const Plant& plant) { return plant.asked.first - plant.position; }
  bool window_holds(const Plant& plant) const { return back_of(plant) < rows_of(window_); }

  // The least doubling of the text after which the first string has left a window of the same memory's bytes;
  // nothing when none does.
  std::optional<std::int64_t> telling_length() const {
    const double least = *std::min_element(plants_.copies.begin(), plants_.copies.end());
    for (std::int64_t length = 2 * length_; length <= kLongestAdvised; length *= 2) {
      const SessionOptions options = policy_for(arguments_, model_, heads_, length);
      const auto back = static_cast<std::int64_t>((1.0 - least) * static_cast<double>(length - strings_));
      if (rows_of(window_beside(model_, options, length)) < back) return length;
    }
    return std::nullopt;
  }

  // Beside a window that still holds a string no memory can be better: said before the time is spent.
  void say_what_it_cannot_show() const {
    const auto held = static_cast<std::size_t>(std::count_if(
        text_.plants.begin(), text_.plants.end(), [&](const Plant& p) { return window_holds(p); }));
    if (words_.empty())
      return say(
          "note: this memory keeps everything, so nothing can be lost; --kv-budget 20M is one that can");
    if (held == 0) return;
    const bool all = held == text_.plants.size();
    const auto longer = telling_length();
    const bool short_text = longer && arguments_.file && *longer > static_cast<std::int64_t>(filler_.size());
    say(cat("note: the plain window still holds ", all ? "every string" : cat(held, " of the strings"),
            " when asked, so ", all ? "this test shows" : "these show",
            " no difference from it; a smaller --kv-budget",
            longer ? cat(" or --ctx ", *longer, short_text ? " and a longer text" : "") : "", " does"));
  }

  static constexpr std::int64_t kLongestAdvised = std::int64_t{1} << 20;

  const Arguments& arguments_;
  const Model& model_;
  HeadTable heads_;
  std::int64_t length_ = arguments_.lengths.front(), strings_ = 0;
  PlantOptions plants_;
  std::vector<TokenId> filler_;
  PlantedText text_;
  SessionOptions options_, control_, window_;
  std::string words_;
  std::vector<StringResult> results_;
  double means_[kMemories] = {}, chance_ = 0.0;
  std::int64_t kv_bytes_[kMemories] = {};
};

std::string CopyTest::text() const {
  const bool alone = arguments_.alone;
  std::vector<std::vector<std::string>> table;
  const auto add = [&](std::string name, std::string back, std::string full, std::string policy,
                       std::string window) {
    if (alone) return table.push_back({std::move(name), std::move(back), std::move(policy)});
    table.push_back(
        {std::move(name), std::move(back), std::move(full), std::move(policy), std::move(window)});
  };
  add("string", "tokens back", "full", "this", "window");
  for (const StringResult& result : results_)
    add(result.name, count_text(result.back),
        cat(number_text(result.nll[kFull], 2), result.nll[kFull] >= chance_ ? " (fails)" : ""),
        number_text(result.nll[kPolicy], 2),
        cat(number_text(result.nll[kPlainWindow], 2), result.window_holds ? " (held)" : ""));
  add("mean", "", number_text(means_[kFull], 2), number_text(means_[kPolicy], 2),
      number_text(means_[kPlainWindow], 2));
  const std::string held = bytes_text(kv_bytes_[kPolicy]);
  return cat(columns_text(table), "-ln p per token; a guess among all plain words costs ",
             number_text(chance_, 2), ". KV: ",
             alone ? held
                   : cat("full ", bytes_text(kv_bytes_[kFull]), ", this ", held, ", window ",
                         bytes_text(kv_bytes_[kPlainWindow])),
             "\n");
}

std::string CopyTest::json() const {
  const bool alone = arguments_.alone;
  Json items = Json::array();
  for (const StringResult& result : results_) {
    Json item = Json::object();
    item.set("string", result.name)
        .set("position", result.position)
        .set("back", result.back)
        .set("nll", result.nll[kPolicy]);
    if (!alone)
      item.set("full_nll", result.nll[kFull])
          .set("window_nll", result.nll[kPlainWindow])
          .set("window_holds", result.window_holds)
          .set("control_fails", result.nll[kFull] >= chance_);
    items.push(std::move(item));
  }
  Json json = Json::object();
  json.set("model", model_.name())
      .set("ctx", length_)
      .set("policy", words_)
      .set("kv_bytes", kv_bytes_[kPolicy])
      .set("chance", chance_)
      .set("nll", means_[kPolicy]);
  if (!alone)
    json.set("control", control_words(control_))
        .set("window", window_words(window_))
        .set("full_kv_bytes", kv_bytes_[kFull])
        .set("window_kv_bytes", kv_bytes_[kPlainWindow])
        .set("full_nll", means_[kFull])
        .set("window_nll", means_[kPlainWindow]);
  json.set("strings", std::move(items));
  return json.text() + "\n";
}

}  // namespace

int copytest_command(const Arguments& arguments) {
  const Model model = load_model(arguments.model, arguments);
  CopyTest test(arguments, model);
  test.run();
  write_result(arguments.json ? test.json() : test.text());
  return kExitFine;
}

}  // namespace kvtide
