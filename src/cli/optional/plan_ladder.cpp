#include "cli/optional/plan_ladder.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "base/json/json.h"
#include "base/text.h"
#include "cli/output/columns.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
// Of the full f16 cache. Eight bits take a little more than a half.
constexpr double kShares[] = {1.0 / 40, 1.0 / 24, 1.0 / 16, 1.0 / 12, 1.0 / 8, 1.0 / 6, 1.0 / 4,
                              3.0 / 8,  1.0 / 2,  5.0 / 8,  3.0 / 4,  1.0,     1.25};
constexpr double kBar = 24.0;  // characters of a whole budget

std::string kept_text(const MemoryPlan& plan, std::int64_t tokens) {
  const ProceduralOptions& p = *plan.options.procedural;
  if (is_exact(plan, tokens)) return "everything, exactly";
  if (plan.kept_below > tokens)
    return cat("every row: f16 up to ", count_text(plan.exact_below), " tokens, then all in q8_0");
  const std::string window = cat("the newest ", count_text(p.window), " exact");
  const bool whole = p.full_rows == 0 || p.window + p.full_rows >= tokens;
  if (whole && plan.plain_heads == 0)
    return cat("every row; ", window, ", the rest in ", name_of(p.full_type));
  return cat(plan.full_heads, " of ", plan.full_heads + plan.plain_heads, " heads keep ",
             whole ? "all" : count_text(p.full_rows), " rows (", name_of(p.full_type), "); ", window,
             "; blocks of ", p.block, " keep ", p.rows);
}

// = exact rows, # rows of heads that keep them, . summaries and outliers, + what the method needs beside them.
std::string bar(const LadderLine& line, std::int64_t tokens) {
  const ProceduralBytes& b = line.plan.bytes;
  std::string text;
  std::int64_t sum = 0;
  const auto add = [&](std::int64_t bytes, char mark) {
    sum += bytes;
    const double end = kBar * static_cast<double>(sum) / static_cast<double>(line.budget);
    text.resize(std::max(text.size(), static_cast<std::size_t>(end + 0.5)), mark);
  };
  if (line.plan.kept_below > tokens) {
    // Nothing is sealed before the text ends.
    const bool exact = line.plan.exact_below > tokens;
    add(exact ? line.plan.full_cache : b.exact_first, exact ? '=' : '#');
    text.resize(static_cast<std::size_t>(kBar), ' ');
    return text;
  }
  add(b.window + b.rings + b.carried, '=');
  add(b.full, '#');
  add(b.compact, '.');
  add(b.references, '+');
  text.resize(static_cast<std::size_t>(kBar), ' ');
  return text;
}

std::string loss_text(const LadderLine& line, std::int64_t tokens) {
  if (is_exact(line.plan, tokens)) return "none";
  return line.loss
             ? cat(number_text(line.loss->kl, 4), "  ", number_text(100.0 * line.loss->perplexity, 1), "%")
             : "not measured";
}

bool is_beyond(const ModelConfig& config, std::int64_t tokens) {
  return config.context_length > 0 && tokens > config.context_length;
}

}  // namespace

bool is_exact(const MemoryPlan& plan, std::int64_t tokens) {
  return plan.options.procedural->window >= tokens || plan.exact_below > tokens;
}

std::string no_measure_words(const ModelConfig& config, std::int64_t tokens) {
  if (!is_beyond(config, tokens)) return "";
  return cat("  loss: unknown beyond the ", count_text(config.context_length),
             " tokens that the model was trained for; a full cache reads worse there itself\n");
}

std::optional<ExpectedLoss> loss_of(const ModelConfig& config, const MemoryPlan& plan,
                                    std::string_view model_hash, std::int64_t tokens) {
  const std::int64_t budget = plan.options.procedural->budget;
  if (budget == 0 || plan.full_cache == 0 || is_beyond(config, tokens)) return std::nullopt;
  auto loss =
      expected_loss(model_hash, tokens, static_cast<double>(budget) / static_cast<double>(plan.full_cache));
  if (loss && is_exact(plan, tokens)) loss->kl = loss->perplexity = 0.0;
  return loss;
}

void set_loss(Json& json, const std::optional<ExpectedLoss>& loss) {
  if (!loss) return;
  Json measured = Json::object();
  measured.set("model", loss->measured->name).set("ctx", loss->measured->tokens);
  json.set("expected_kl", loss->kl)
      .set("expected_dppl", loss->perplexity)
      .set("measured", std::move(measured));
}

std::string measured_words(const ExpectedLoss& loss, std::int64_t tokens) {
  if (loss.same_model && loss.measured->tokens == tokens) return "";
  const std::string length = cat(count_text(loss.measured->tokens), " tokens");
  if (loss.same_model) return cat("  loss: measured at ", length, ", with the same share of a full cache\n");
  return cat("  loss: that of ", loss.measured->name, " at ", length,
             ", with the same share of a full cache; kvtide ppl measures this model\n");
}

std::vector<LadderLine> plan_ladder(const ModelConfig& config, const SessionOptions& options,
                                    std::string_view model_hash, std::int64_t tokens, double read_bytes) {
  SessionOptions unbounded = options;
  unbounded.procedural->budget = 0;
  const MemoryPlan without = plan_memory(config, unbounded, tokens);
  const MachineLimits limits = measure_limits(without.options);
  std::vector<LadderLine> ladder;
  for (const double share : kShares) {
    LadderLine line;
    const auto bytes = static_cast<std::int64_t>(static_cast<double>(without.full_cache) * share);
    line.budget = (bytes + kMiB - 1) / kMiB * kMiB;
    if (!ladder.empty() && ladder.back().budget == line.budget) continue;
    SessionOptions chosen = options;
    chosen.procedural->budget = line.budget;
    chosen.procedural->budget_for = tokens;
    try {
      line.plan = plan_memory(config, chosen, tokens);
      line.write_tok_s = predict(config, line.plan, limits, read_bytes).write_tok_s;
      line.loss = loss_of(config, line.plan, model_hash, tokens);
    } catch (const Error& error) {
      const std::string_view why = error.what();
      const auto least = why.rfind("use at least ");
      line.refused = least == why.npos ? why : cat("too small: ", why.substr(least));
    }
    ladder.push_back(std::move(line));
  }
  return ladder;
}

std::string ladder_text(const ModelConfig& config, const std::vector<LadderLine>& ladder,
                        std::int64_t tokens) {
  std::vector<std::vector<std::string>> rows{{"budget", "full cache", "loss", "write tok/s", "bytes"}};
  std::string measured = no_measure_words(config, tokens);
  std::vector<std::string> kept{"what is kept"};
  for (const LadderLine& line : ladder) {
    if (!line.refused.empty()) {
      rows.push_back({bytes_text(line.budget), "", "", "", ""});
      kept.push_back(line.refused);
      continue;
    }
    const double share = 100.0 * static_cast<double>(line.budget) / static_cast<double>(line.plan.full_cache);
    if (line.loss) measured = measured_words(*line.loss, tokens);
    rows.push_back({bytes_text(line.budget), cat(number_text(share, 0), "%"), loss_text(line, tokens),
                    number_text(line.write_tok_s, 1), bar(line, tokens)});
    kept.push_back(kept_text(line.plan, tokens));
  }
  std::istringstream columns(columns_text(rows));
  std::string text;
  for (const std::string& what : kept) {
    std::string line;
    std::getline(columns, line);
    text += cat(line, "  ", what, "\n");
  }
  return cat(text, "loss: KL per token against a full cache, nats, and growth of the perplexity\n", measured,
             "bytes: = exact rows, # rows of heads that keep them, . summaries and outliers, + references; a "
             "bar of ",
             static_cast<int>(kBar), " is the budget\nwrite tok/s: at most, at the end of ",
             count_text(tokens), " tokens\n");
}

std::string ladder_json(const std::vector<LadderLine>& ladder, const std::string& model,
                        std::int64_t tokens) {
  Json lines = Json::array(), json = Json::object();
  for (const LadderLine& line : ladder) {
    Json one = Json::object();
    one.set("budget", line.budget);
    if (!line.refused.empty()) {
      one.set("refused", line.refused);
    } else {
      const ProceduralOptions& p = *line.plan.options.procedural;
      one.set("total_bytes", line.plan.bytes.total())
          .set("kept", kept_text(line.plan, tokens))
          .set("window", p.window)
          .set("block", p.block)
          .set("rows", p.rows)
          .set("full_heads", line.plan.full_heads)
          .set("full_rows", p.full_rows)
          .set("full_type", name_of(p.full_type))
          .set("write_tok_s", line.write_tok_s);
      set_loss(one, line.loss);
    }
    lines.push(std::move(one));
  }
  json.set("model", model).set("ctx", tokens).set("ladder", std::move(lines));
  return json.text() + "\n";
}

}  // namespace kvtide
