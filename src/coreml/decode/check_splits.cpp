#include "coreml/decode/check_splits.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "coreml/decode/call_arrays.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace check_splits_details {

using Pieces = std::vector<std::int64_t>;

struct Seen {
  std::vector<std::pair<std::int64_t, std::vector<float>>> logits;  // behind so many tokens
  std::vector<std::pair<std::string, std::vector<float>>> states;
};

Seen read_in(Decoder& decoder, std::span<const TokenId> text, const Pieces& pieces) {
  decoder.reset();
  Seen seen;
  std::size_t at = 0;
  // Of every token where a call gives them; otherwise of the last one of each call.
  bool all = false;
  decoder.on_logits = [&](const CoremlArray& given, std::int64_t tokens) {
    const std::vector<float> logits = as_floats(given);
    const auto first = static_cast<std::size_t>(decoder.position());  // of this call: a read may take several
    const std::size_t width = given.shape.empty() ? 0 : static_cast<std::size_t>(given.shape.back());
    all = width > 0 && logits.size() == width * static_cast<std::size_t>(tokens);
    for (std::size_t i = 0; all && i < static_cast<std::size_t>(tokens); ++i)
      seen.logits.emplace_back(
          first + i + 1, std::vector<float>(logits.begin() + static_cast<std::ptrdiff_t>(i * width),
                                            logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * width)));
  };
  for (const std::int64_t piece : pieces) {
    all = false;
    std::vector<float> last = decoder.read(text.subspan(at, static_cast<std::size_t>(piece)));
    at += static_cast<std::size_t>(piece);
    if (!all) seen.logits.emplace_back(at, std::move(last));
  }
  decoder.on_logits = nullptr;
  for (const CoremlState& state : decoder.sequence().states)
    for (const std::string& name : state.names()) seen.states.emplace_back(name, as_floats(state.read(name)));
  return seen;
}

// As a part of what the numbers reach; infinity where one of them is no number in one of the two only.
float difference(const std::vector<float>& a, const std::vector<float>& b) {
  float least = 0.0f, most = 0.0f, farthest = 0.0f;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) continue;
    farthest =
        std::max(farthest, std::isfinite(a[i]) && std::isfinite(b[i]) ? std::fabs(a[i] - b[i]) : INFINITY);
  }
  for (const float value : a)
    if (std::isfinite(value)) least = std::min(least, value), most = std::max(most, value);
  return farthest == 0.0f ? 0.0f : farthest / std::max(most - least, 1e-6f);
}

std::string sum_of(const Pieces& pieces) {
  std::string text;
  for (const std::int64_t piece : pieces) text += cat(text.empty() ? "" : " + ", piece);
  return text;
}

Finding finding(Severity severity, const char* rule, std::string message) {
  Finding made;
  made.severity = severity;
  made.rule = rule;
  made.message = std::move(message);
  return made;
}

// 5 + 1 + 3, or what reaches the smallest call of several tokens; empty: there is none.
Pieces pieces_for(const Decoder& decoder) {
  constexpr std::int64_t kTokens = 9, kMost = 4096;
  if (decoder.size_of_call(5, 5) > 1 && decoder.slots() >= kTokens) return {5, 1, 3};
  for (std::int64_t tokens = 2; tokens <= std::min(kMost, decoder.slots() - 2); ++tokens)
    if (decoder.size_of_call(tokens, tokens) > 1) return {tokens + 1, 1};
  return {};
}

std::string percent(float part) {
  if (!(part < 10.0f)) return "more than 1000%";
  const long tenths = std::lround(part * 1000.0f);
  return cat(tenths / 10, ".", tenths % 10, "%");
}

}  // namespace check_splits_details

using namespace check_splits_details;

std::vector<Finding> check_splits(Decoder& decoder) {
  const Pieces pieces = pieces_for(decoder);
  if (pieces.empty())
    return {finding(Severity::hint, "one-token-calls",
                    "every call takes one token, so there is no other way to cut a text")};
  std::int64_t tokens = 0;
  for (const std::int64_t piece : pieces) tokens += piece;
  const TokenId first = 0;
  const auto vocabulary = static_cast<std::int64_t>(decoder.read(std::span(&first, 1)).size());
  std::vector<TokenId> text;
  for (std::int64_t i = 0; i < tokens; ++i) text.push_back(static_cast<TokenId>((7 + i * 7919) % vocabulary));
  const Seen ones = read_in(decoder, text, Pieces(static_cast<std::size_t>(tokens), 1));
  const Seen split = read_in(decoder, text, pieces);
  std::vector<Finding> findings;
  const std::string how = cat(tokens, " tokens read one by one and as ", sum_of(pieces));
  for (const auto& [behind, logits] : split.logits) {
    const float apart = difference(ones.logits[static_cast<std::size_t>(behind - 1)].second, logits);
    if (apart <= kSplitTolerance) continue;
    findings.push_back(
        finding(Severity::error, "split-changes-logits",
                cat(how, ": the logits behind token ", behind, " differ by ", percent(apart),
                    " of their range, so a call of several tokens does not do what calls of one do")));
    break;
  }
  for (std::size_t i = 0; i < split.states.size(); ++i) {
    const float apart = difference(ones.states[i].second, split.states[i].second);
    if (apart > kSplitTolerance)
      findings.push_back(finding(Severity::error, "split-changes-state",
                                 cat(how, ": the state ", quoted(split.states[i].first), " differs by ",
                                     percent(apart), " of its range")));
  }
  return findings;
}

std::vector<Finding> check_splits(const std::string& path, const CoremlOptions& options) {
  std::unique_ptr<Decoder> decoder;
  try {
    decoder = open_decoder(path, options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return {finding(Severity::warning, "not-run", cat("it could not be run: ", error.message()))};
  }
  try {
    return check_splits(*decoder);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::out_of_memory || error.code() == ErrorCode::cancelled) throw;
    return {finding(Severity::error, "call-fails",
                    cat("the call behind token ", decoder->position(), " fails: ", error.message()))};
  }
}

}  // namespace kvtide::coreml
