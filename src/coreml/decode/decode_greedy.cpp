#include "coreml/decode/decode_greedy.h"

#include "base/stopwatch.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace decode_greedy_details {

// Ties go to the lower id, as everywhere.
TokenId likeliest(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!(logits[id] - logits[id] == 0.0f))
      throw Error(ErrorCode::numeric,
                  cat("the logit of token ", id, " is ", logits[id], "; it must be a number"));
    if (logits[id] > logits[best]) best = id;
  }
  return static_cast<TokenId>(best);
}

std::vector<PartTime> difference(std::vector<PartTime> after, const std::vector<PartTime>& before) {
  for (std::size_t i = 0; i < after.size(); ++i) {
    after[i].calls -= before[i].calls;
    after[i].seconds -= before[i].seconds;
  }
  return after;
}

}  // namespace decode_greedy_details

using namespace decode_greedy_details;

Decoded decode_greedy(Decoder& decoder, std::span<const TokenId> prompt, const DecodeOptions& options) {
  Decoded out;
  const auto at_first = decoder.parts();
  const std::int64_t calls = decoder.calls();
  const Stopwatch reading;
  std::vector<float> logits = decoder.read(prompt, options.chunk);
  out.prompt_seconds = reading.seconds();
  out.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  out.prompt_calls = decoder.calls() - calls;
  const auto behind_prompt = decoder.parts();
  out.prompt_parts = difference(behind_prompt, at_first);
  const Stopwatch writing;
  while (static_cast<std::int64_t>(out.tokens.size()) < options.max_tokens) {
    const TokenId next = likeliest(logits);
    if (options.ends_text && options.ends_text(next)) {
      out.reason = StopReason::end_of_text;
      break;
    }
    out.tokens.push_back(next);
    if (options.on_token && !options.on_token(next)) {
      out.reason = StopReason::cancelled;
      break;
    }
    if (static_cast<std::int64_t>(out.tokens.size()) == options.max_tokens) break;
    if (decoder.position() == decoder.slots()) {
      out.reason = StopReason::context_full;
      break;
    }
    logits = decoder.read(std::span(&next, 1));
  }
  out.decode_seconds = writing.seconds();
  out.decode_calls = decoder.calls() - calls - out.prompt_calls;
  out.decode_parts = difference(decoder.parts(), behind_prompt);
  return out;
}

}  // namespace kvtide::coreml
