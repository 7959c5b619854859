// kvtide coreml bench: how fast a language model in Core ML packages reads and writes, and what it takes.
#include <algorithm>

#include "base/json/json.h"
#include "base/refuse.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/inspect_folder.h"
#include "cli/commands/interrupt.h"
#include "cli/optional/coreml_actions.h"
#include "cli/output/memory_reading.h"
#include "cli/output/terminal.h"
#include "coreml/decode/decode_greedy.h"

namespace kvtide {
namespace {
namespace coreml_bench_details {

constexpr int kRounds = 3;
constexpr std::int64_t kTokens = 32;

struct PartMilliseconds {
  std::string name;
  double a_token = 0.0;
};

// Of several rounds the fastest: what else runs on the machine only makes them slower.
struct Measured {
  double read_seconds = 0.0, write_seconds = 0.0;
  std::int64_t read = 0, read_calls = 0, written = 0;
  std::vector<PartMilliseconds> parts;
};

Measured measure(coreml::Decoder& decoder, std::int64_t prompt, std::int64_t tokens, std::int64_t chunk) {
  const TokenId first = 0;
  const auto vocabulary = static_cast<std::int64_t>(decoder.read(std::span(&first, 1)).size());
  std::vector<TokenId> text;
  for (std::int64_t i = 0; i < prompt; ++i) text.push_back(static_cast<TokenId>((7 + i * 7919) % vocabulary));
  coreml::DecodeOptions how;
  how.max_tokens = tokens + 1;  // the first comes from the text that was read
  how.chunk = chunk;
  Measured best;
  for (int round = 0; round < kRounds; ++round) {
    stop_if_interrupted("nothing was measured");
    decoder.reset();
    const coreml::Decoded result = coreml::decode_greedy(decoder, text, how);
    if (round == 0 || result.prompt_seconds < best.read_seconds) best.read_seconds = result.prompt_seconds;
    best.read = result.prompt_tokens;
    best.read_calls = result.prompt_calls;
    if (round > 0 && result.decode_seconds >= best.write_seconds) continue;
    best.write_seconds = result.decode_seconds;
    best.written = result.decode_calls;
    best.parts.clear();
    for (const coreml::PartTime& part : result.decode_parts)
      if (part.calls > 0)
        best.parts.push_back({part.name, 1e3 * part.seconds / static_cast<double>(part.calls)});
  }
  return best;
}

double rate_of(std::int64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

Json bench_json(const coreml::Decoder& decoder, const Measured& m, double load, std::int64_t rss) {
  Json parts = Json::array(), out = Json::object();
  for (const PartMilliseconds& part : m.parts) {
    Json one = Json::object();
    one.set("package", part.name).set("ms", part.a_token);
    parts.push(std::move(one));
  }
  out.set("contract", coreml::contract_name(decoder.kind()))
      .set("prompt_tokens", m.read)
      .set("prompt_calls", m.read_calls)
      .set("prompt_tok_s", rate_of(m.read, m.read_seconds))
      .set("decode_tokens", m.written)
      .set("decode_tok_s", rate_of(m.written, m.write_seconds))
      .set("parts", std::move(parts))
      .set("slots", decoder.slots())
      .set("state_bytes", decoder.state_bytes())
      .set("state_bytes_copied", decoder.state_bytes_copied())
      .set("weight_bytes", decoder.weight_bytes())
      .set("rss_bytes", rss)
      .set("load_seconds", load);
  return out;
}

}  // namespace coreml_bench_details
}  // namespace

int coreml_bench(const Arguments& arguments) {
  using namespace coreml_bench_details;
  CoremlOptions options;
  options.threads = arguments.session.threads;
  options.kernels = arguments.session.kernels;
  const Stopwatch loading;
  const auto decoder = coreml::open_decoder(arguments.coreml.package, options);
  const double load = loading.seconds();
  const std::int64_t tokens = arguments.max_tokens.value_or(kTokens);
  const std::int64_t prompt = std::min(arguments.coreml.read, decoder->slots() - tokens);
  if (prompt < 1)
    refuse(cat("-n ", tokens, ": the states hold ", decoder->slots(), " tokens, and some are read first"));
  const Measured m = measure(*decoder, prompt, tokens, arguments.coreml.chunk);
  const std::int64_t rss = read_memory().rss;
  if (arguments.json) {
    write_result(bench_json(*decoder, m, load, rss).text() + "\n");
    return kExitFine;
  }
  write_result(cat("reads ", number_text(rate_of(m.read, m.read_seconds), 1), " tok/s (", m.read,
                   " tokens in ", m.read_calls, " calls); writes ",
                   number_text(rate_of(m.written, m.write_seconds), 1), " tok/s\nstates ",
                   bytes_text(decoder->state_bytes()), " of ", decoder->slots(), " tokens, ",
                   bytes_text(decoder->state_bytes_copied()), " copied; packed weights ",
                   bytes_text(decoder->weight_bytes()), "; resident ", bytes_text(rss), "\n"));
  for (const PartMilliseconds& part : m.parts)
    write_result(cat("  ", shown(part.name), ": ", number_text(part.a_token, 2), " ms a token\n"));
  return kExitFine;
}

}  // namespace kvtide
