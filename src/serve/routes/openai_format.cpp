#include "serve/routes/openai_format.h"

#include <algorithm>
#include <utility>

namespace kvtide::serve {
namespace openai_format {

const char* finish_reason(const Written& choice) {
  if (choice.waits_for_tools()) return "tool_calls";
  const StopReason reason = choice.reason;
  return reason == StopReason::max_tokens || reason == StopReason::context_full ? "length" : "stop";
}

Json call_object(const std::string& id, const std::string& name, const std::string& arguments) {
  Json function = Json::object(), out = Json::object();
  function.set("name", name).set("arguments", arguments);
  out.set("id", id).set("type", "function").set("function", std::move(function));
  return out;
}

Json tool_calls(const std::vector<ToolCall>& calls) {
  Json out = Json::array();
  for (const ToolCall& call : calls) out.push(call_object(call.id, call.name, call.arguments));
  return out;
}

Json chat_logprob(const Tokenizer& tokenizer, TokenId id, double logprob) {
  const std::string bytes = tokenizer.piece(id, true);
  Json list = Json::array();
  for (const char c : bytes) list.push(static_cast<int>(static_cast<unsigned char>(c)));
  Json out = Json::object();
  out.set("token", bytes).set("logprob", logprob).set("bytes", std::move(list));
  return out;
}

Json chat_logprobs(const AnswerHead& head, const std::vector<TokenLogprob>& logprobs) {
  Json content = Json::array();
  for (const TokenLogprob& token : logprobs) {
    Json one = chat_logprob(*head.tokenizer, token.id, token.logprob), top = Json::array();
    for (const auto& [id, logprob] : token.top) top.push(chat_logprob(*head.tokenizer, id, logprob));
    content.push(std::move(one.set("top_logprobs", std::move(top))));
  }
  Json out = Json::object();
  out.set("content", std::move(content)).set("refusal", Json());
  return out;
}

Json text_logprobs(const AnswerHead& head, const std::vector<TokenLogprob>& logprobs) {
  Json tokens = Json::array(), values = Json::array(), tops = Json::array(), offsets = Json::array();
  std::size_t offset = 0;
  for (const TokenLogprob& token : logprobs) {
    const std::string text = head.tokenizer->piece(token.id, true);
    tokens.push(text);
    values.push(token.logprob);
    offsets.push(offset);
    offset += text.size();
    Json top = Json::object();
    std::vector<std::string> seen;  // several tokens may spell the same
    for (const auto& [id, logprob] : token.top) {
      const std::string other = head.tokenizer->piece(id, true);
      if (std::find(seen.begin(), seen.end(), other) != seen.end()) continue;
      seen.push_back(other);
      top.set(other, logprob);
    }
    tops.push(std::move(top));
  }
  Json out = Json::object();
  out.set("tokens", std::move(tokens)).set("token_logprobs", std::move(values));
  out.set("top_logprobs", std::move(tops)).set("text_offset", std::move(offsets));
  return out;
}

// What chat and plain text have in common.
class Format : public AnswerFormat {
 public:
  Format(AnswerHead head, bool include_usage) : head_(std::move(head)), include_usage_(include_usage) {}

  std::string problem(const Problem& problem) override {
    return "data: " + problem_body(problem, dialect()) + "\n\n";
  }
  std::string closing(const std::vector<Written>&, const AnswerFigures& figures) override {
    std::string out;
    if (include_usage_) {
      Json last = object_of(chunk_name());
      last.set("choices", Json::array()).set("usage", openai_usage(figures));
      out = server_event(last);
    }
    return out + "data: [DONE]\n\n";
  }

 protected:
  virtual const char* chunk_name() const = 0;
  Json object_of(const char* name) const {
    Json out = Json::object();
    out.set("id", head_.id).set("object", name).set("created", head_.created).set("model", head_.model);
    return out;
  }
  std::string chunk(Json choice) const {
    Json choices = Json::array(), out = object_of(chunk_name());
    choices.push(std::move(choice));
    out.set("choices", std::move(choices));
    if (include_usage_) out.set("usage", Json());
    return server_event(out);
  }
  std::string whole_of(const char* name, Json choices, const AnswerFigures& figures) const {
    Json out = object_of(name);
    out.set("choices", std::move(choices)).set("usage", openai_usage(figures));
    return out.text(false);
  }

  AnswerHead head_;
  bool include_usage_;
};

class Chat final : public Format {
 public:
  using Format::Format;

  std::string whole(const std::vector<Written>& written, const AnswerFigures& figures) override {
    Json choices = Json::array();
    for (const Written& choice : written) {
      Json message = Json::object(), one = Json::object();
      const bool only_calls = choice.text.empty() && !choice.calls.empty();
      message.set("role", "assistant").set("content", only_calls ? Json() : Json(choice.text));
      message.set("refusal", Json());
      if (!choice.calls.empty()) message.set("tool_calls", tool_calls(choice.calls));
      one.set("index", choice.index).set("message", std::move(message));
      one.set("logprobs", head_.with_logprobs ? chat_logprobs(head_, choice.logprobs) : Json());
      one.set("finish_reason", finish_reason(choice));
      choices.push(std::move(one));
    }
    return whole_of("chat.completion", std::move(choices), figures);
  }
  std::string opening(const AnswerFigures&) override { return ""; }
  std::string piece(const AnswerPiece& piece) override {
    if (piece.text.empty() && piece.logprobs.empty()) return role(piece.choice);
    Json content = Json::object();
    content.set("content", piece.text);
    return role(piece.choice) + delta(piece.choice, std::move(content), Json(),
                                      head_.with_logprobs ? chat_logprobs(head_, piece.logprobs) : Json());
  }
  std::string ended(const Written& choice) override {
    return role(choice.index) + delta(choice.index, Json::object(), finish_reason(choice), Json());
  }
  std::string call_begun(const Written& choice) override {
    const ToolCall& call = choice.calls.back();
    return call_delta(choice, call_object(call.id, call.name, ""));
  }
  std::string call_grew(const Written& choice, const std::string& piece) override {
    Json function = Json::object(), call = Json::object();
    function.set("arguments", piece);
    return call_delta(choice, std::move(call.set("function", std::move(function))));
  }

 private:
  const char* chunk_name() const override { return "chat.completion.chunk"; }
  std::string delta(int index, Json content, Json reason, Json logprobs) const {
    Json choice = Json::object();
    choice.set("index", index).set("delta", std::move(content)).set("logprobs", std::move(logprobs));
    return chunk(std::move(choice.set("finish_reason", std::move(reason))));
  }
  std::string call_delta(const Written& choice, Json call) {
    Json list = Json::array(), content = Json::object();
    list.push(std::move(call.set("index", choice.calls.size() - 1)));
    content.set("tool_calls", std::move(list));
    return role(choice.index) + delta(choice.index, std::move(content), Json(), Json());
  }
  // Once for every choice, in front of its first piece.
  std::string role(int index) {
    if (index < begun_) return "";
    begun_ = index + 1;
    Json content = Json::object();
    content.set("role", "assistant").set("content", "");
    return delta(index, std::move(content), Json(), Json());
  }
  int begun_ = 0;  // choices begin one after the other
};

class Text final : public Format {
 public:
  Text(AnswerHead head, bool include_usage, std::string echo)
      : Format(std::move(head), include_usage), echo_(std::move(echo)) {}

  std::string whole(const std::vector<Written>& written, const AnswerFigures& figures) override {
    Json choices = Json::array();
    for (const Written& choice : written)
      choices.push(choice_of(choice.index, echo_ + choice.text, choice.logprobs, finish_reason(choice)));
    return whole_of("text_completion", std::move(choices), figures);
  }
  std::string opening(const AnswerFigures&) override { return ""; }
  std::string piece(const AnswerPiece& piece) override {
    std::string text = piece.text;
    if (piece.choice >= begun_) {
      text = echo_ + text;
      begun_ = piece.choice + 1;
    }
    if (text.empty() && piece.logprobs.empty()) return "";
    return chunk(choice_of(piece.choice, text, piece.logprobs, Json()));
  }
  std::string ended(const Written& choice) override {
    return chunk(choice_of(choice.index, "", {}, finish_reason(choice)));
  }

 private:
  const char* chunk_name() const override { return "text_completion"; }
  Json choice_of(int index, const std::string& text, const std::vector<TokenLogprob>& logprobs, Json reason) {
    Json out = Json::object();
    out.set("index", index).set("text", text);
    out.set("logprobs", head_.with_logprobs && !logprobs.empty() ? text_logprobs(head_, logprobs) : Json());
    out.set("finish_reason", std::move(reason));
    return out;
  }
  std::string echo_;
  int begun_ = 0;
};

}  // namespace openai_format

Json openai_usage(const AnswerFigures& figures) {
  Json cached = Json::object(), out = Json::object();
  cached.set("cached_tokens", figures.cached_tokens);
  out.set("prompt_tokens", figures.prompt_tokens).set("completion_tokens", figures.written_tokens);
  out.set("total_tokens", figures.prompt_tokens + figures.written_tokens);
  out.set("prompt_tokens_details", std::move(cached));
  return out;
}

std::unique_ptr<AnswerFormat> chat_format(AnswerHead head, bool include_usage) {
  return std::make_unique<openai_format::Chat>(std::move(head), include_usage);
}

std::unique_ptr<AnswerFormat> text_format(AnswerHead head, bool include_usage, std::string echo) {
  return std::make_unique<openai_format::Text>(std::move(head), include_usage, std::move(echo));
}

}  // namespace kvtide::serve
