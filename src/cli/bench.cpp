// kvtide bench: how fast a model is read ("pp": prompt processing) and written ("tg": text generation) at
// several depths, and what share of the machine's own limits that is.
#include <algorithm>
#include <optional>

#include "base/stopwatch.h"
#include "base/text.h"
#include "cli/bench_profile.h"
#include "cli/commands.h"
#include "cli/exit_status.h"
#include "cli/input_text.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/memory_reading.h"
#include "cli/opening.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/terminal.h"
#include "eval/limits.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

struct Case {
  bool reads;  // "pp", else "tg"
  std::int64_t n;
  std::int64_t depth;
};

struct Measured {
  double seconds = 0.0;  // median
  PassTimes times;       // of the last repetition, when they are asked for
  std::uint64_t hash = 0;
  std::int64_t kv_bytes = 0, rss_bytes = 0;
};

class Bench {
 public:
  Bench(const Arguments& arguments, OpenModel& open, std::vector<TokenId> tokens)
      : arguments_(arguments), model_(open.model), session_(open.session), tokens_(std::move(tokens)) {}

  Measured measure(const Case& what) {
    std::vector<double> seconds;
    Measured result;
    for (int i = 0; i < arguments_.repetitions; ++i) {
      const std::uint64_t hash = once(what, seconds);
      if (i > 0 && hash != result.hash)
        throw Error(ErrorCode::numeric,
                    cat("bench: two runs of the same text gave different logits (hash ",
                        hash_text(result.hash), " and ", hash_text(hash), "); this is a bug"));
      result.hash = hash;
    }
    std::sort(seconds.begin(), seconds.end());
    const std::size_t middle = seconds.size() / 2;
    result.seconds =
        seconds.size() % 2 == 1 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2.0;
    result.times = times_;
    result.kv_bytes = session_.memory().kv;
    result.rss_bytes = read_memory().rss;
    return result;
  }

  PassWork parts_of(const Case& what) const {
    if (what.reads) return parts_of_reading(model_, session_.options(), what.depth, what.n);
    PassWork work;
    for (std::int64_t i = 0; i < what.n; ++i)
      work += parts_of_pass(model_, session_.options(), what.depth + i, 1, 1);
    return work;
  }

  Work work_of(const Case& what) const {
    if (what.reads) return work_of_reading(model_, session_.options(), what.depth, what.n);
    Work work;
    for (std::int64_t i = 0; i < what.n; ++i)
      work += work_of_pass(model_, session_.options(), what.depth + i, 1, 1);
    return work;
  }

  // The first pass over the weights brings them into memory; it is not measured.
  void warm_up() {
    session_.clear();
    session_.read(part(0, 1));
  }

 private:
  std::span<const TokenId> part(std::int64_t first, std::int64_t count) const {
    return std::span(tokens_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
  }

  std::uint64_t once(const Case& what, std::vector<double>& seconds) {
    session_.clear();
    {
      Progress progress("filling", session_);
      ReadOptions fill;
      fill.need_logits = false;
      fill.progress = [&](std::int64_t done) {
        progress.update(done, what.depth);
        return !interrupted();
      };
      session_.read(part(0, what.depth), fill);
    }
    const PassTimes before = session_.times();
    const std::uint64_t hash = what.reads ? read_once(what, seconds) : write_once(what, seconds);
    times_ = session_.times() - before;
    return hash;
  }

  std::uint64_t read_once(const Case& what, std::vector<double>& seconds) {
    ReadOptions read;
    read.progress = [](std::int64_t) { return !interrupted(); };
    const Stopwatch watch;
    session_.read(part(what.depth, what.n), read);
    seconds.push_back(watch.seconds());
    return hash_logits(session_.logits());
  }

  std::uint64_t write_once(const Case& what, std::vector<double>& seconds) {
    double spent = 0.0;
    std::uint64_t hash = 0;
    for (std::int64_t i = 0; i < what.n; ++i) {
      stop_if_interrupted("bench: stopped; nothing is kept");
      const Stopwatch watch;
      session_.read(part(what.depth + i, 1));
      spent += watch.seconds();
      hash = hash_logits(session_.logits(), hash);
    }
    seconds.push_back(spent);
    return hash;
  }

  const Arguments& arguments_;
  const Model& model_;
  Session& session_;
  std::vector<TokenId> tokens_;
  PassTimes times_;
};

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

}  // namespace

int bench_command(const Arguments& arguments) {
  std::optional<InputText> input;
  if (arguments.file) input = read_text_file(*arguments.file);
  const std::int64_t deepest = *std::max_element(arguments.depths.begin(), arguments.depths.end());
  const std::int64_t needed = deepest + std::max(arguments.bench_prompt, arguments.bench_tokens);
  OpenModel open(arguments, arguments.memory.overflow == Overflow::rolling ? 0 : needed);
  ContextGuard(open.session).before_reading(needed);
  Bench bench(arguments, open, bench_tokens(arguments, open.model, input, needed));
  say(open.headline());

  const SessionOptions& options = open.session.options();
  const MachineLimits limits = measure_limits(options);
  const std::string header =
      cat("limits of this machine with these threads: ", number_text(limits.read_gb_s, 1), " GB/s read, ",
          number_text(limits.f32_gflop_s, 0), " GFLOP/s f32, ", number_text(limits.bf16_gflop_s, 0),
          " bf16, ", number_text(limits.int8_gop_s, 0), " GOP/s int8");
  Json list = Json::array();
  if (arguments.json)
    say(header);
  else
    write_result(
        header +
        "\ntest       depth  threads      tok/s     ms/tok     GB/s   limit         KV        RSS  " +
        "logits\n");

  bench.warm_up();
  for (const std::int64_t depth : arguments.depths)
    for (const Case& what :
         {Case{true, arguments.bench_prompt, depth}, Case{false, arguments.bench_tokens, depth}}) {
      if (what.n == 0) continue;
      const Measured measured = bench.measure(what);
      const Work work = bench.work_of(what);
      const double rate = static_cast<double>(what.n) / measured.seconds;
      const double gb_s = work.bytes / measured.seconds * 1e-9;
      const double share =
          what.reads ? work.operations / measured.seconds / arithmetic_limit(limits, open.model, options)
                     : gb_s / limits.read_gb_s;
      if (arguments.json) {
        Json item = Json::object();
        item.set("test", what.reads ? "pp" : "tg")
            .set("n", what.n)
            .set("depth", depth)
            .set("threads", options.threads)
            .set("tok_s", rate)
            .set("ms_tok", 1e3 / rate)
            .set("gb_s", gb_s)
            .set("limit_share", share)
            .set("logits_hash", hash_text(measured.hash))
            .set("kv_bytes", measured.kv_bytes)
            .set("rss_bytes", measured.rss_bytes)
            .set("repetitions", arguments.repetitions);
        if (options.profile)
          item.set("profile", profile_json(measured.times, bench.parts_of(what), limits, options, what.n));
        list.push(std::move(item));
        continue;
      }
      std::string name = cat(what.reads ? "pp" : "tg", what.n);
      name.resize(std::max<std::size_t>(name.size(), 8), ' ');
      write_result(cat(name, padded(count_text(depth), 8), padded(cat(options.threads), 9),
                       padded(number_text(rate, 1), 11), padded(number_text(1e3 / rate, 3), 11),
                       padded(number_text(gb_s, 1), 9), padded(number_text(share * 100.0, 1), 7), "%",
                       padded(bytes_text(measured.kv_bytes), 11), padded(bytes_text(measured.rss_bytes), 11),
                       "  ", hash_text(measured.hash), "\n"));
      if (options.profile)
        write_result(profile_text(measured.times, bench.parts_of(what), limits, options, what.n));
    }
  if (arguments.json) write_result(list.text() + "\n");
  return kExitFine;
}

}  // namespace kvtide
