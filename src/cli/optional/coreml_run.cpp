// kvtide coreml run: a language model in Core ML packages, from a prompt to text, with what every package took.
#include <optional>

#include "base/json/json.h"
#include "base/refuse.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/input_text.h"
#include "cli/commands/inspect_folder.h"
#include "cli/commands/interrupt.h"
#include "cli/optional/coreml_actions.h"
#include "cli/output/terminal.h"
#include "coreml/decode/decode_greedy.h"
#include "coreml/decode/folder_tokenizer.h"
#include "coreml/decode/sequence_file.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {
namespace coreml_run_details {

double per_second(std::int64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

Json parts_json(const std::vector<coreml::PartTime>& parts) {
  Json list = Json::array();
  for (const coreml::PartTime& part : parts) {
    Json one = Json::object();
    one.set("package", part.name).set("calls", part.calls).set("seconds", part.seconds);
    list.push(std::move(one));
  }
  return list;
}

Json report(const coreml::Decoder& decoder, const coreml::Decoded& result, const std::string& text,
            double load) {
  Json out = Json::object();
  out.set("contract", coreml::contract_name(decoder.kind()))
      .set("text", text)
      .set("tokens", Json::array(result.tokens))
      .set("stop_reason", stop_reason_name(result.reason))
      .set("prompt_tokens", result.prompt_tokens)
      .set("prompt_calls", result.prompt_calls)
      .set("prompt_tok_s", per_second(result.prompt_tokens, result.prompt_seconds))
      .set("decode_calls", result.decode_calls)
      .set("decode_tok_s", per_second(result.decode_calls, result.decode_seconds))
      .set("slots", decoder.slots())
      .set("state_bytes", decoder.state_bytes())
      .set("state_bytes_copied", decoder.state_bytes_copied())
      .set("weight_bytes", decoder.weight_bytes())
      .set("load_seconds", load)
      .set("prompt_parts", parts_json(result.prompt_parts))
      .set("decode_parts", parts_json(result.decode_parts));
  return out;
}

void say_figures(const coreml::Decoder& decoder, const coreml::Decoded& result) {
  say(cat("read ", result.prompt_tokens, " tokens in ", result.prompt_calls, " calls, ",
          number_text(per_second(result.prompt_tokens, result.prompt_seconds), 1), " tok/s; wrote ",
          result.tokens.size(), ", ", number_text(per_second(result.decode_calls, result.decode_seconds), 1),
          " tok/s; states ", bytes_text(decoder.state_bytes()), " of ", decoder.slots(), " tokens, ",
          bytes_text(decoder.state_bytes_copied()), " copied; packed weights ",
          bytes_text(decoder.weight_bytes())));
  for (const coreml::PartTime& part : result.decode_parts)
    if (part.calls > 0)
      say(cat("  ", shown(part.name), ": ",
              number_text(1e3 * part.seconds / static_cast<double>(part.calls), 2), " ms a token"));
}

std::string text_of(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  std::string text;
  for (const TokenId token : tokens) text += tokenizer.piece(token);
  return text;
}

// A text that goes on needs no more than that, and begins nothing.
std::vector<TokenId> prompt_of(const Arguments& arguments, const Tokenizer& tokenizer) {
  const bool goes_on = !arguments.coreml.load.empty();
  if (goes_on && !arguments.prompt && !arguments.file) return {};
  const InputText input = given_text(arguments);
  Arguments how = arguments;
  how.no_bos = how.no_bos || goes_on;
  return encode_text(tokenizer, input, how);
}

// As a session does, with the token that was written last.
void save_read(coreml::Decoder& decoder, const coreml::Decoded& result, const std::string& path) {
  const bool open = result.reason == StopReason::max_tokens || result.reason == StopReason::cancelled;
  if (open && !result.tokens.empty() && decoder.position() < decoder.slots())
    decoder.read(std::span(&result.tokens.back(), 1));
  coreml::save_sequence(decoder, path);
}

}  // namespace coreml_run_details
}  // namespace

int coreml_run(const Arguments& arguments) {
  using namespace coreml_run_details;
  std::optional<Tokenizer> tokenizer;
  std::vector<TokenId> prompt(arguments.coreml.ids.begin(), arguments.coreml.ids.end());
  if (!arguments.coreml.tokenizer.empty()) {
    tokenizer.emplace(coreml::tokenizer_of(arguments.coreml.tokenizer));
    prompt = prompt_of(arguments, *tokenizer);
  }
  CoremlOptions options;
  options.threads = arguments.session.threads;
  options.kernels = arguments.session.kernels;
  const Stopwatch loading;
  const auto decoder = coreml::open_decoder(arguments.coreml.package, options);
  const double load = loading.seconds();
  if (!arguments.coreml.load.empty()) {
    const std::vector<TokenId> last = coreml::load_sequence(*decoder, arguments.coreml.load, 1);
    prompt.insert(prompt.begin(), last.begin(), last.end());
  }
  coreml::DecodeOptions how;
  how.max_tokens = arguments.max_tokens.value_or(how.max_tokens);
  how.chunk = arguments.coreml.chunk;
  if (tokenizer) how.ends_text = [&](TokenId token) { return tokenizer->ends_text(token); };
  how.on_token = [](TokenId) { return !interrupted(); };
  const coreml::Decoded result = coreml::decode_greedy(*decoder, prompt, how);
  if (!arguments.coreml.save.empty()) save_read(*decoder, result, arguments.coreml.save);
  std::string text;
  if (tokenizer) {
    text = text_of(*tokenizer, result.tokens);
  } else {
    for (const TokenId token : result.tokens) text += cat(text.empty() ? "" : ",", token);
  }
  if (arguments.json) {
    write_result(report(*decoder, result, text, load).text() + "\n");
  } else {
    write_result(text + "\n");
    say_figures(*decoder, result);
  }
  if (result.reason == StopReason::cancelled) return exit_status(ErrorCode::cancelled);
  return result.reason == StopReason::context_full ? exit_status(ErrorCode::context_full) : kExitFine;
}

}  // namespace kvtide
