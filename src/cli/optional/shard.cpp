// kvtide shard: a model as separate files, one for each attention, feed-forward and range of the vocabulary;
// and these files driven as one model.
#include <unistd.h>

#include "base/json/json.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/input_text.h"
#include "cli/commands/interrupt.h"
#include "cli/optional/optional_actions.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"
#include "shards/sharded_generate.h"

namespace kvtide {
namespace {

constexpr std::int64_t kDefaultShardTokens = 256;

int export_model(const Arguments& arguments) {
  const Stopwatch watch;
  ShardExport how = arguments.shard.how;
  how.threads = arguments.loading.threads;
  std::int64_t bytes = 0;
  std::int64_t shards = 0;
  how.on_shard = [&](const ShardInfo& shard) {
    stop_if_interrupted("nothing was exported");
    bytes += shard.bytes;
    ++shards;
  };
  export_shards(arguments.model, arguments.out, how);
  const std::string_view weights = how.type == ShardExport::Type::f16 ? "f16"
                                   : how.scales == ShardExport::Scales::channel
                                       ? "int8, a scale for each channel"
                                       : "int8, a scale for each tensor";
  if (arguments.json) {
    Json result = Json::object();
    result.set("folder", arguments.out)
        .set("shards", shards)
        .set("bytes", bytes)
        .set("weights", weights)
        .set("seconds", watch.seconds());
    write_result(result.text() + "\n");
    return kExitFine;
  }
  say(cat(arguments.out, ": ", shards, " shards, ", bytes_text(bytes), ", ", weights, ", in ",
          time_text(watch.seconds())));
  return kExitFine;
}

double rate(std::int64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

// Tokens that reading behind the prompt gave: the first token comes from the prompt itself.
std::int64_t decoded(const ShardedGenerated& result) {
  return static_cast<std::int64_t>(result.tokens.size()) - (result.tokens.empty() ? 0 : 1);
}

// Milliseconds of a call behind the prompt; null where there was none.
Json decode_ms(const ShardSeconds& spent) {
  if (spent.calls == 0) return {};
  const double scale = 1000.0 / static_cast<double>(spent.calls);
  Json layers = Json::array(), out = Json::object();
  for (std::size_t i = 0; i < spent.attention.size(); ++i) {
    Json layer = Json::object();
    layer.set("attention", spent.attention[i] * scale).set("mlp", spent.mlp[i] * scale);
    layers.push(std::move(layer));
  }
  out.set("embedding", spent.embedding * scale)
      .set("layers", std::move(layers))
      .set("head", spent.head * scale);
  return out;
}

Json report(const ShardedModel& model, const ShardedGenerated& result, const std::string& text, double load) {
  Json seconds = Json::object(), out = Json::object();
  seconds.set("embedding", model.seconds().embedding)
      .set("attention", model.seconds().all_attention())
      .set("mlp", model.seconds().all_mlp())
      .set("head", model.seconds().head);
  out.set("text", text)
      .set("tokens", Json::array(result.tokens))
      .set("stop_reason", stop_reason_name(result.reason))
      .set("prompt_tokens", result.prompt_tokens)
      .set("prompt_tok_s", rate(result.prompt_tokens, result.prompt_seconds))
      .set("decode_tok_s", rate(decoded(result), result.decode_seconds))
      .set("calls", result.calls)
      .set("drafted", result.drafted)
      .set("accepted", result.accepted)
      .set("shards", model.folder().shards().size())
      .set("slots", model.folder().slots())
      .set("weights_bytes", model.weights_bytes())
      .set("state_bytes", model.state_bytes())
      .set("load_seconds", load)
      .set("seconds", std::move(seconds))
      .set("decode_ms", decode_ms(result.decode));
  return out;
}

// "a call takes 0.42 ms a layer (attention 0.25, feed-forward 0.17; layer 3 takes most, 0.51) and 1.8 ms in the
// head"
std::string parts_text(const ShardSeconds& spent) {
  const double scale = 1000.0 / static_cast<double>(spent.calls);
  const auto layers = static_cast<double>(spent.attention.size());
  std::size_t slowest = 0;
  const auto of_layer = [&](std::size_t i) { return (spent.attention[i] + spent.mlp[i]) * scale; };
  for (std::size_t i = 1; i < spent.attention.size(); ++i)
    if (of_layer(i) > of_layer(slowest)) slowest = i;
  const double attention = spent.all_attention() * scale / layers, mlp = spent.all_mlp() * scale / layers;
  return cat("a call takes ", number_text(attention + mlp, 3), " ms a layer (attention ",
             number_text(attention, 3), ", feed-forward ", number_text(mlp, 3), "; layer ", slowest,
             " takes most, ", number_text(of_layer(slowest), 3), ") and ", number_text(spent.head * scale, 3),
             " ms in the head");
}

void say_figures(const ShardedModel& model, const ShardedGenerated& result) {
  std::string line =
      cat("prompt ", result.prompt_tokens, " tokens, ",
          number_text(rate(result.prompt_tokens, result.prompt_seconds), 1), " tok/s; answer ",
          result.tokens.size(), " tokens, ", number_text(rate(decoded(result), result.decode_seconds), 1),
          " tok/s in ", result.calls, " calls");
  if (result.drafted > 0)
    line += cat("; drafts: ", result.accepted, " of ", result.drafted, " accepted (",
                number_text(100.0 * rate(result.accepted, static_cast<double>(result.drafted)), 1), "%)");
  say(cat(line, "; weights ", bytes_text(model.weights_bytes()), ", states ",
          bytes_text(model.state_bytes())));
  if (result.decode.calls > 0) say(parts_text(result.decode));
}

int run_shards(const Arguments& arguments) {
  const InputText input = given_text(arguments);
  const Stopwatch loading;
  ShardedModel model(arguments.model,
                     {.threads = arguments.session.threads, .kernels = arguments.session.kernels});
  const double load = loading.seconds();
  const std::vector<TokenId> prompt = encode_text(model.tokenizer(), input, arguments);
  ShardedGenerateOptions options;
  options.max_tokens = arguments.max_tokens.value_or(kDefaultShardTokens);
  options.draft = arguments.shard.draft;
  // Text of the tokens so far; what is cut in the middle of a character waits for the rest.
  std::vector<TokenId> tokens;
  std::size_t written = 0;
  const auto show = [&](bool last) {
    std::string text;
    for (const TokenId token : tokens) text += model.tokenizer().piece(token);
    std::size_t end = text.size();
    if (!last)
      while (end > written && end + 4 > text.size() &&
             (static_cast<unsigned char>(text[end - 1]) & 0x80u) != 0)
        --end;
    if (!arguments.json) write_result(std::string_view(text).substr(written, end - written));
    written = end;
    return text;
  };
  options.on_token = [&](TokenId token) {
    tokens.push_back(token);
    show(false);
    return !interrupted();
  };
  const ShardedGenerated result = generate_greedy(model, prompt, options);
  const std::string text = show(true);
  if (arguments.json) {
    write_result(report(model, result, text, load).text() + "\n");
  } else {
    if (!text.empty() && ::isatty(STDOUT_FILENO) == 1) write_result("\n");
    say_figures(model, result);
  }
  if (result.reason == StopReason::cancelled) return exit_status(ErrorCode::cancelled);
  if (result.reason != StopReason::context_full) return kExitFine;
  say(cat("kvtide: all ", model.folder().slots(),
          " slots are in use and the answer ends here; export with more --slots"));
  return exit_status(ErrorCode::context_full);
}

}  // namespace

int shard_command(const Arguments& arguments) {
  return arguments.shard.action == "export" ? export_model(arguments) : run_shards(arguments);
}

}  // namespace kvtide
