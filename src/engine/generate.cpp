#include "kvtide/generate.h"

#include <algorithm>
#include <optional>

#include "base/out_of_memory.h"
#include "kvtide/error.h"
#include "text/utf8.h"

namespace kvtide {
namespace {

// Text that may be handed out: holds back whatever could still become a stop string.
class StopFilter {
 public:
  explicit StopFilter(const std::vector<std::string>& stops) : stops_(stops) {}

  // Adds text; gives what is certain now. found() tells whether a stop string was completed (text after it is
  // dropped).
  std::string add(std::string_view text) {
    held_ += text;
    std::size_t end = std::string::npos;
    for (const auto& stop : stops_)
      if (!stop.empty()) end = std::min(end, held_.find(stop));
    if (end != std::string::npos) {
      found_ = true;
      return take(end);
    }
    std::size_t safe = held_.size();
    for (const auto& stop : stops_)
      for (std::size_t length = std::min(stop.size(), held_.size()); length > 0; --length)
        if (held_.ends_with(std::string_view(stop).substr(0, length))) {
          safe = std::min(safe, held_.size() - length);
          break;
        }
    return take(safe);
  }
  std::string rest() { return take(held_.size()); }
  bool found() const { return found_; }

 private:
  std::string take(std::size_t n) {
    std::string out = held_.substr(0, n);
    held_.erase(0, n);
    return out;
  }
  const std::vector<std::string>& stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace

const char* stop_reason_name(StopReason reason) noexcept {
  switch (reason) {
    case StopReason::end_of_text:
      return "end_of_text";
    case StopReason::max_tokens:
      return "max_tokens";
    case StopReason::stop_string:
      return "stop_string";
    case StopReason::context_full:
      return "context_full";
    case StopReason::cancelled:
      return "cancelled";
  }
  return "unknown";
}

Generated generate(Session& session, const GenerateOptions& options) try {
  const Tokenizer& tokenizer = session.model().tokenizer();
  Sampler sampler(options.sampler);
  StopFilter filter(options.stop);
  Utf8Stream characters;
  std::vector<TokenId> recent = options.history;
  Generated out;
  const auto emit = [&](const std::string& text) {
    out.text += text;
    return text.empty() || !options.on_text || options.on_text(text);
  };

  std::optional<StopReason> reason;
  while (!reason) {
    if (options.max_tokens >= 0 && static_cast<std::int64_t>(out.tokens.size()) >= options.max_tokens) {
      reason = StopReason::max_tokens;
      break;
    }
    if (options.on_logits) options.on_logits(session.logits());
    const TokenId token = sampler.pick(session.logits(), recent);
    if (tokenizer.ends_text(token) || std::find(options.stop_tokens.begin(), options.stop_tokens.end(),
                                                token) != options.stop_tokens.end()) {
      reason = StopReason::end_of_text;
      break;
    }
    out.tokens.push_back(token);
    recent.push_back(token);
    if (!emit(filter.add(characters.push(tokenizer.piece(token))))) reason = StopReason::cancelled;
    if (filter.found()) reason = StopReason::stop_string;
    if (session.room() < 1 && (reason || !options.make_room || !options.make_room())) {
      if (!reason) reason = StopReason::context_full;
      break;
    }
    session.read({&token, 1});
  }
  if (!filter.found()) emit(filter.add(characters.finish()) + filter.rest());
  out.reason = *reason;
  return out;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
