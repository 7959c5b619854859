// kvtide bench: how fast a model is read ("pp": prompt processing) and written ("tg": text generation) at
// several depths, and what share of the machine's own limits that is.
#include <algorithm>
#include <optional>
#include <span>

#include "base/json/json.h"
#include "base/text.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/input_text.h"
#include "cli/commands/opening.h"
#include "cli/optional/bench_profile.h"
#include "cli/optional/bench_run.h"
#include "cli/optional/optional_actions.h"
#include "cli/output/output_file.h"
#include "cli/output/report.h"
#include "cli/output/speed_plot.h"
#include "cli/output/terminal.h"
#include "eval/limits.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

// Tokens of the text, or a fixed sequence that visits the vocabulary in no obvious order.
std::vector<TokenId> bench_tokens(const Arguments& arguments, const Model& model,
                                  const std::optional<InputText>& input, std::int64_t needed) {
  std::vector<TokenId> tokens;
  if (!input) {
    for (std::int64_t i = 0; i < needed; ++i)
      tokens.push_back(static_cast<TokenId>((i * 7919 + 101) % model.vocabulary()));
    return tokens;
  }
  tokens = encode_text(model.tokenizer(), *input, arguments);
  if (static_cast<std::int64_t>(tokens.size()) < needed)
    throw Error(ErrorCode::invalid_argument,
                cat(input->name, ": has ", tokens.size(), " tokens; this bench reads ", needed,
                    ": a longer text or smaller -d, -p, -n are needed"));
  return tokens;
}

std::string padded(std::string text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string limits_text(const MachineLimits& limits) {
  return cat("limits of this machine with these threads: ", number_text(limits.read_gb_s, 1), " GB/s read, ",
             number_text(limits.f32_gflop_s, 0), " GFLOP/s f32, ", number_text(limits.bf16_gflop_s, 0),
             " bf16, ", number_text(limits.int8_gop_s, 0), " GOP/s int8");
}

struct BenchRow {
  BenchCase what;
  BenchResult measured;
  std::optional<PassWork> work;  // nullopt: a memory that compresses holds other rows than the text has
  PassLimits limits;

  double tok_s() const { return static_cast<double>(what.tokens()) / measured.seconds; }
  std::optional<double> gb_s() const {
    return work ? std::optional(work->bytes() / measured.seconds * 1e-9) : std::nullopt;
  }
  std::optional<double> limit_share() const {
    return work ? std::optional(least_seconds(*work, limits) / measured.seconds) : std::nullopt;
  }
};

Json row_json(const BenchRow& row, const std::string& model, const SessionOptions& options, int repetitions) {
  const std::optional<double> share = row.limit_share();
  Json item = Json::object();
  item.set("engine", "kvtide")
      .set("model", model)
      .set("test", row.what.reads ? "pp" : "tg")
      .set("n", row.what.n)
      .set("depth", row.what.depth)
      .set("sessions", row.what.sessions)
      .set("threads", options.threads)
      .set("tok_s", row.tok_s())
      .set("ms_tok", 1e3 / row.tok_s())
      .set("gb_s", row.gb_s())
      .set("limit_share", share)
      .set("limit_tok_s", share ? std::optional(row.tok_s() / *share) : std::nullopt)
      .set("logits_hash", hash_text(row.measured.hash))
      .set("kv_bytes", row.measured.kv_bytes)
      .set("rss_bytes", row.measured.rss_bytes)
      .set("repetitions", repetitions);
  if (options.profile)
    item.set("profile", profile_json(row.measured.times, row.work, row.limits, row.what.n));
  return item;
}

std::string row_text(const BenchRow& row, const SessionOptions& options) {
  const auto number = [](const std::optional<double>& value) {
    return value ? number_text(*value, 1) : std::string("-");
  };
  const std::optional<double> share = row.limit_share();
  std::string name = cat(row.what.reads ? "pp" : "tg", row.what.n);
  if (row.what.sessions > 1) name += cat("x", row.what.sessions);
  name.resize(std::max<std::size_t>(name.size(), 8), ' ');
  std::string text =
      cat(name, padded(count_text(row.what.depth), 8), padded(cat(options.threads), 9),
          padded(number_text(row.tok_s(), 1), 11), padded(number_text(1e3 / row.tok_s(), 3), 11),
          padded(number(row.gb_s()), 9), padded(number(share ? std::optional(*share * 100.0) : share), 7),
          "%", padded(bytes_text(row.measured.kv_bytes), 11), padded(bytes_text(row.measured.rss_bytes), 11),
          "  ", hash_text(row.measured.hash), "\n");
  if (options.profile) text += profile_text(row.measured.times, row.work, row.limits, row.what.n);
  return text;
}

void write_plot(const std::string& path, std::span<const SpeedPoint> points) {
  OutputFile::write_whole(path, speed_plot(points));
  say(cat("wrote ", path));
}

}  // namespace

int bench_command(const Arguments& arguments) {
  if (!arguments.plot.empty()) OutputFile::check_replaceable(arguments.plot);
  std::vector<SpeedPoint> points;
  if (!arguments.rows.empty()) points = read_speed_points(arguments.rows);
  if (arguments.model.empty()) {
    write_plot(arguments.plot, points);
    return kExitFine;
  }

  std::optional<InputText> input;
  if (arguments.file) input = read_document(*arguments.file, arguments);
  const std::int64_t deepest = *std::max_element(arguments.depths.begin(), arguments.depths.end());
  const std::int64_t needed = deepest + std::max(arguments.bench_prompt, arguments.bench_tokens);
  OpenModel open(arguments, arguments.memory.overflow == Overflow::rolling ? 0 : needed);
  ContextGuard(open.session).before_reading(needed);
  BenchRun bench(arguments, open, bench_tokens(arguments, open.model, input, needed));
  say(open.headline());

  const SessionOptions& options = open.session.options();
  MachineLimits limits = measure_limits(options);
  if (arguments.json)
    say(limits_text(limits));
  else
    write_result(cat(limits_text(limits),
                     "\ntest       depth  threads      tok/s     ms/tok     GB/s   limit         KV",
                     "        RSS  logits\n"));

  bench.warm_up();
  Json list = Json::array();
  for (const std::int64_t depth : arguments.depths)
    for (const BenchCase& what : {BenchCase{true, arguments.bench_prompt, depth},
                                  BenchCase{false, arguments.bench_tokens, depth, arguments.sessions}}) {
      if (what.n == 0) continue;
      BenchRow row{what, bench.measure(what), std::nullopt, {}};
      limits = best_of_both(limits, measure_limits(options));
      row.limits = pass_limits(limits, open.model, options);
      if (!options.procedural && what.sessions == 1) row.work = bench.work_of(what);
      points.push_back({"kvtide", open.model.title(), what.reads, depth, row.tok_s(),
                        row.limit_share() ? row.tok_s() / *row.limit_share() : 0.0});
      if (arguments.json)
        list.push(row_json(row, open.model.name(), options, arguments.repetitions));
      else
        write_result(row_text(row, options));
    }
  if (arguments.json) write_result(list.text() + "\n");
  if (!arguments.plot.empty()) write_plot(arguments.plot, points);
  return kExitFine;
}

}  // namespace kvtide
