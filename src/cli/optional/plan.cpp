// kvtide plan: what a procedural memory would take for a model and a length, and how fast it could be.
#include <algorithm>

#include "base/json/json.h"
#include "base/text.h"
#include "cli/arguments/procedural_options.h"
#include "cli/commands/cache_folder.h"
#include "cli/commands/choose_heads.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/loading.h"
#include "cli/optional/optional_actions.h"
#include "cli/optional/plan_ladder.h"
#include "cli/output/columns.h"
#include "cli/output/kv_cost.h"
#include "cli/output/procedural_report.h"
#include "cli/output/terminal.h"
#include "eval/known_models.h"
#include "eval/plan.h"
#include "kvtide/error.h"
#include "kvtide/heads.h"
#include "model/identity.h"
#include "model/loaded_model.h"

namespace kvtide {
namespace {

// The share of SmolLM2's heads that copy from the past: 6 of 90.
constexpr double kFullShare = 6.0 / 90.0;

struct Subject {
  std::string name;
  ModelConfig config;
  HeadTable heads;
  double weights_bytes = 0.0;
  double read_bytes =
      0.0;  // of them, by a token that is written: the experts that it does not choose are left out
  std::string heads_words;
  std::string hash;  // of the model file; empty: there is none
};

ModelShape shape_of(const PlanRequest& request, std::int64_t tokens) {
  ModelShape shape;
  if (!request.like.empty()) {
    const auto known = std::find_if(known_shapes().begin(), known_shapes().end(),
                                    [&](const ModelShape& s) { return s.name == request.like; });
    std::string list;
    for (const ModelShape& s : known_shapes()) list += cat(list.empty() ? "" : ", ", s.name);
    for (const KnownModel& m : known_models()) list += cat(", ", m.name);
    if (known == known_shapes().end())
      throw Error(ErrorCode::invalid_argument,
                  cat("--like: there is no ", quoted(request.like), "; there are ", list));
    shape = *known;
  } else {
    shape.name = request.heads ? "a model of this shape"
                               : "a model of this shape with as many query heads as KV heads (--heads N)";
    shape.vocab = 32768;
    shape.trained = tokens;
  }
  const auto take = [](auto& target, const std::optional<std::int64_t>& given) {
    if (given) target = static_cast<std::remove_reference_t<decltype(target)>>(*given);
  };
  take(shape.layers, request.layers);
  take(shape.kv_heads, request.kv_heads);
  take(shape.head_dim, request.head_dim);
  take(shape.trained, request.trained);
  take(shape.vocab, request.vocab);
  if (request.heads) {
    shape.heads = static_cast<int>(*request.heads);
  } else if (request.like.empty()) {
    shape.heads = shape.kv_heads;
  }
  if (request.like.empty()) {
    shape.width = static_cast<std::int64_t>(shape.heads) * shape.head_dim;
    shape.hidden = shape.width * 7 / 2;
  }
  take(shape.width, request.width);
  take(shape.hidden, request.hidden);
  return shape;
}

// A model whose layers differ has no shape by numbers.
std::optional<ModelConfig> known_config(const PlanRequest& request) {
  for (const KnownModel& known : known_models()) {
    if (known.name != request.like) continue;
    if (request.layers || request.heads || request.kv_heads || request.head_dim || request.width ||
        request.hidden || request.vocab || request.trained)
      throw Error(
          ErrorCode::invalid_argument,
          cat("--like ", known.name, ": numbers do not change this shape; its layers are not all alike"));
    return config_of(known);
  }
  return std::nullopt;
}

Subject subject_of(const Arguments& arguments, std::int64_t tokens) {
  const std::string& table = arguments.memory.procedural.heads;
  if (!arguments.model.empty()) {
    const Model model = load_model(arguments.model, arguments);
    Subject subject{model.name(),
                    model.internals().config,
                    choose_heads(arguments, model),
                    static_cast<double>(model.weights_bytes()),
                    0.0,
                    "",
                    ""};
    subject.read_bytes =
        subject.weights_bytes * matrix_elements(subject.config) / stored_elements(subject.config);
    if (arguments.plan.ladder ||
        arguments.memory.procedural.chosen.budget > 0)  // a hash may read all of the file
      subject.hash = model_identity(model, cache_folder(arguments)).at("model");
    subject.heads_words =
        subject.heads.needs.empty() ? "all alike (--kv-heads even)" : "as in the model's head table";
    return subject;
  }
  Subject subject;
  if (auto known = known_config(arguments.plan)) {
    subject.name = arguments.plan.like;
    subject.config = std::move(*known);
  } else {
    const ModelShape shape = shape_of(arguments.plan, tokens);
    subject.name = shape.name;
    subject.config = config_of(shape);
  }
  subject.weights_bytes = stored_elements(subject.config) * arguments.plan.bits / 8.0;
  subject.read_bytes = matrix_elements(subject.config) * arguments.plan.bits / 8.0;
  if (table == "even") {
    subject.heads_words = "all alike (--kv-heads even)";
  } else if (table != "auto") {
    subject.heads = read_heads(table);
    subject.heads_words = "as in " + table;
  } else {
    const auto global = std::count_if(
        subject.config.layers.begin(), subject.config.layers.end(), [](const LayerConfig& layer) {
          return layer.mixer == Mixer::attention && !layer.window && layer.rows_of < 0;
        });
    const double all = static_cast<double>(global * subject.config.kv_heads);
    const std::int64_t full = arguments.plan.full_heads.value_or(
        std::max<std::int64_t>(1, static_cast<std::int64_t>(kFullShare * all + 0.5)));
    subject.heads = assumed_heads(subject.config, full);
    subject.heads_words = arguments.plan.full_heads ? "as given, spread evenly"
                                                    : "assumed: the share of SmolLM2's, spread evenly";
  }
  return subject;
}

// What a plan says, measured and predicted.
struct Predicted {
  Subject subject;
  std::int64_t tokens = 0;
  MemoryPlan plan;
  MachineLimits limits;
  PredictedRates rates;
};

std::string plan_json(const Predicted& all) {
  const auto& [subject, tokens, plan, limits, rates] = all;
  const ProceduralOptions& p = *plan.options.procedural;
  const ProceduralBytes& b = plan.bytes;
  Json tiers = Json::object(), picked = Json::object(), machine = Json::object(), json = Json::object();
  tiers.set("window", b.window)
      .set("rings", b.rings)
      .set("references", b.references)
      .set("compact", b.compact)
      .set("full_heads", b.full)
      .set("carried", b.carried);
  picked.set("sinks", p.sinks)
      .set("window", p.window)
      .set("block", p.block)
      .set("rows", p.rows)
      .set("row_type", name_of(p.row_type))
      .set("summaries", p.summaries)
      .set("levels", p.levels)
      .set("full_rows", p.full_rows)
      .set("full_type", name_of(p.full_type))
      .set("exact_below", plan.exact_below)
      .set("kept_below", plan.kept_below);
  machine.set("read_gb_s", limits.read_gb_s)
      .set("f32_gflop_s", limits.f32_gflop_s)
      .set("int8_gop_s", limits.int8_gop_s);
  json.set("model", subject.name)
      .set("ctx", tokens)
      .set("budget", p.budget > 0 ? Json(p.budget) : Json())
      .set("bytes", std::move(tiers))
      .set("total_bytes", b.total())
      .set("full_cache_bytes", plan.full_cache)
      .set("picked", std::move(picked))
      .set("full_heads", plan.full_heads)
      .set("plain_heads", plan.plain_heads)
      .set("heads", subject.heads_words)
      .set("weights_bytes", subject.weights_bytes)
      .set("read_weights_bytes", subject.read_bytes)
      .set("token_bytes", kv_cost(subject.config, DType::f16, 1))
      .set("carried_bytes", carried_cost(subject.config))
      .set("checkpoint_bytes", checkpoint_cost(subject.config, DType::f16))
      .set("limits", std::move(machine))
      .set("read_tok_s", rates.read_tok_s)
      .set("write_tok_s", rates.write_tok_s)
      .set("full_cache_write_tok_s", rates.full_write_tok_s);
  set_loss(json, loss_of(subject.config, plan, subject.hash, tokens));
  return json.text() + "\n";
}

std::string bytes_table(const Predicted& all) {
  const ProceduralBytes& b = all.plan.bytes;
  const std::int64_t budget = all.plan.options.procedural->budget;
  const auto share = [&](std::int64_t bytes) {
    return cat(number_text(100.0 * static_cast<double>(bytes) / static_cast<double>(b.total()), 1), "%");
  };
  const double gain = static_cast<double>(all.plan.full_cache) / static_cast<double>(b.total());
  return columns_text({{cat("KV at ", count_text(all.tokens), " tokens"), "at most", "share"},
                       {"window and sinks, exact", bytes_text(b.window), share(b.window)},
                       {"layers with a window of their own", bytes_text(b.rings), share(b.rings)},
                       {"queries kept as references", bytes_text(b.references), share(b.references)},
                       {"summaries and outliers", bytes_text(b.compact), share(b.compact)},
                       {"heads that keep every row", bytes_text(b.full), share(b.full)},
                       {"tensors beside rows", bytes_text(b.carried), share(b.carried)},
                       {"in all", bytes_text(b.total()), budget > 0 ? cat("of ", bytes_text(budget)) : ""},
                       {"full f16 cache", bytes_text(all.plan.full_cache), cat(number_text(gain, 1), "x")}});
}

// Of the plain memory: what a token adds, what layers carry, what a place to go back to keeps.
std::string memory_line(const ModelConfig& config) {
  std::string text;
  if (const auto token = kv_cost(config, DType::f16, 1))
    text = cat("a token: ", bytes_text(*token), " in f16");
  if (const auto carried = carried_cost(config); carried > 0) text += cat("; carried: ", bytes_text(carried));
  const auto back = checkpoint_cost(config, DType::f16);
  return cat(text, "; a checkpoint: ", back > 0 ? bytes_text(back) : "nothing, it goes back anywhere", "\n");
}

// What the budget costs, as far as it was measured.
std::string loss_line(const Predicted& all) {
  const auto loss = loss_of(all.subject.config, all.plan, all.subject.hash, all.tokens);
  const bool asked = all.plan.options.procedural->budget > 0 && !is_exact(all.plan, all.tokens);
  if (!loss) return asked ? no_measure_words(all.subject.config, all.tokens) : "";
  return cat("expected loss: KL ", number_text(loss->kl, 4), " nats per token, perplexity ",
             loss->perplexity < 0.0 ? "" : "+", number_text(100.0 * loss->perplexity, 1), "%\n",
             measured_words(*loss, all.tokens));
}

std::string weights_line(const Subject& subject, const Arguments& arguments) {
  std::string text = cat("weights: ", bytes_text(static_cast<std::int64_t>(subject.weights_bytes)));
  if (arguments.model.empty()) text += cat(" (", number_text(arguments.plan.bits, 2), " bits each)");
  if (subject.config.experts)
    text += cat(", of which a token reads ", bytes_text(static_cast<std::int64_t>(subject.read_bytes)));
  return text + "\n";
}

std::string plan_text(const Predicted& all, const Arguments& arguments) {
  const auto& [subject, tokens, plan, limits, rates] = all;
  const ProceduralOptions& p = *plan.options.procedural;
  std::string first;
  if (plan.kept_below > 0)
    first =
        cat("first every row is kept: as it is written below ", count_text(plan.exact_below), " tokens",
            plan.kept_below > plan.exact_below ? cat(", in q8_0 below ", count_text(plan.kept_below)) : "",
            "; that takes at most ", bytes_text(plan.bytes.exact_first), "\n");
  return cat(bytes_table(all), first, first.empty() ? "picked: " : "picked for what comes then: ", p.sinks,
             " sinks, window ", count_text(p.window), p.window_type == WindowType::q8_0 ? " in q8_0" : "",
             ", blocks of ", p.block, " keep ", p.rows, " rows in ", name_of(p.row_type), " (", p.summaries,
             " summaries), ", p.levels, " levels; ", plan.full_heads, " of ",
             plan.full_heads + plan.plain_heads, " heads keep ",
             p.full_rows == 0 ? "all" : count_text(p.full_rows), " rows in ", name_of(p.full_type), " (",
             subject.heads_words, ")\n", loss_line(all), weights_line(subject, arguments),
             memory_line(subject.config), "at most, at the end: write ", number_text(rates.write_tok_s, 1),
             " tok/s (full cache ", number_text(rates.full_write_tok_s, 1), "), read ",
             number_text(rates.read_tok_s, 1), " tok/s\n", "  measured here: memory gives ",
             number_text(limits.read_gb_s, 1),
             " GB/s, and a token that is written reads all weights and the KV memory;\n  a token that is "
             "read computes, at ",
             number_text(limits.int8_gop_s, 0), " thousand million operations per second on 8-bit weights, ",
             number_text(limits.f32_gflop_s, 0), " in attention\n");
}

}  // namespace

int plan_command(const Arguments& arguments) {
  const std::int64_t tokens = arguments.lengths.front();
  Subject subject = subject_of(arguments, tokens);
  SessionOptions options = arguments.session;
  options.procedural = procedural_options(arguments);
  options.procedural->heads = subject.heads;
  if (arguments.plan.ladder) {
    if (options.procedural->budget > 0)
      throw Error(ErrorCode::invalid_argument,
                  "--ladder tells of many budgets; leave out the one that is given");
    const auto ladder = plan_ladder(subject.config, options, subject.hash, tokens, subject.read_bytes);
    write_result(arguments.json ? ladder_json(ladder, subject.name, tokens)
                                : ladder_text(subject.config, ladder, tokens));
    return kExitFine;
  }
  MemoryPlan plan = plan_memory(subject.config, options, tokens);
  const MachineLimits limits = measure_limits(plan.options);
  const PredictedRates rates = predict(subject.config, plan, limits, subject.read_bytes);
  const Predicted all{std::move(subject), tokens, std::move(plan), limits, rates};
  write_result(arguments.json ? plan_json(all) : plan_text(all, arguments));
  return kExitFine;
}

}  // namespace kvtide
