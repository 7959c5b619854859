#include "serve/routes/responses_format.h"

#include <utility>

namespace kvtide::serve {
namespace responses_format {

using Keep = std::function<void(const std::string&, const std::string&)>;

Json usage(const AnswerFigures& f) {
  Json cached = Json::object(), reasoning = Json::object(), out = Json::object();
  cached.set("cached_tokens", f.cached_tokens);
  reasoning.set("reasoning_tokens", 0);
  out.set("input_tokens", f.prompt_tokens).set("input_tokens_details", std::move(cached));
  out.set("output_tokens", f.written_tokens).set("output_tokens_details", std::move(reasoning));
  out.set("total_tokens", f.prompt_tokens + f.written_tokens);
  return out;
}

class Format final : public AnswerFormat {
 public:
  Format(AnswerHead head, ResponseRequest request, std::string message_id, Keep keep)
      : head_(std::move(head)),
        request_(std::move(request)),
        message_id_(std::move(message_id)),
        keep_(std::move(keep)) {}

  std::string whole(const std::vector<Written>& choices, const AnswerFigures& figures) override {
    const std::string body = complete(choices[0], figures).text(false);
    keep_(choices[0].text, body);
    return body;
  }
  std::string opening(const AnswerFigures&) override {
    std::string out = state("response.created", response("in_progress"));
    out += state("response.in_progress", response("in_progress"));
    Json item = event("response.output_item.added");
    item.set("output_index", 0).set("item", message("in_progress", Json::array()));
    out += server_event(item, "response.output_item.added");
    Json part = event("response.content_part.added");
    place(part).set("part", text_part(""));
    return out + server_event(part, "response.content_part.added");
  }
  std::string piece(const AnswerPiece& piece) override {
    if (piece.text.empty()) return "";
    Json out = event("response.output_text.delta");
    place(out).set("delta", piece.text).set("logprobs", Json::array());
    return server_event(out, "response.output_text.delta");
  }
  std::string ended(const Written& choice) override {
    Json text = event("response.output_text.done");
    place(text).set("text", choice.text).set("logprobs", Json::array());
    Json part = event("response.content_part.done");
    place(part).set("part", text_part(choice.text));
    Json item = event("response.output_item.done"), content = Json::array();
    content.push(text_part(choice.text));
    item.set("output_index", 0).set("item", message("completed", std::move(content)));
    return server_event(text, "response.output_text.done") +
           server_event(part, "response.content_part.done") + server_event(item, "response.output_item.done");
  }
  std::string closing(const std::vector<Written>& choices, const AnswerFigures& figures) override {
    keep_(choices[0].text, complete(choices[0], figures).text(false));
    return state(is_cut(choices[0]) ? "response.incomplete" : "response.completed",
                 complete(choices[0], figures));
  }
  std::string problem(const Problem& problem) override {
    Json out = event("error");
    out.set("code", problem.code.empty() ? "server_error" : problem.code).set("message", problem.message);
    return server_event(out.set("param", Json()), "error");
  }

 private:
  static bool is_cut(const Written& choice) {
    return choice.reason == StopReason::max_tokens || choice.reason == StopReason::context_full;
  }
  static Json text_part(const std::string& text) {
    Json out = Json::object();
    out.set("type", "output_text").set("text", text).set("annotations", Json::array());
    return out;
  }
  // Named and numbered in the order in which they are made.
  Json event(const char* type) {
    Json out = Json::object();
    out.set("type", type).set("sequence_number", sequence_++);
    return out;
  }
  Json& place(Json& event) const {
    return event.set("item_id", message_id_).set("output_index", 0).set("content_index", 0);
  }
  std::string state(const char* type, Json body) {
    Json out = event(type);
    return server_event(out.set("response", std::move(body)), type);
  }
  Json message(const char* status, Json content) const {
    Json out = Json::object();
    out.set("type", "message").set("id", message_id_).set("status", status).set("role", "assistant");
    out.set("content", std::move(content));
    return out;
  }
  Json complete(const Written& choice, const AnswerFigures& figures) const {
    Json content = Json::array(), output = Json::array();
    content.push(text_part(choice.text));
    output.push(message("completed", std::move(content)));
    return response(is_cut(choice) ? "incomplete" : "completed", std::move(output), usage(figures));
  }
  Json response(const std::string& status, Json output = Json::array(), Json counts = {}) const {
    Json why = Json::object(), form = Json::object(), text = Json::object(), out = Json::object();
    why.set("reason", "max_output_tokens");
    form.set("type", "text");
    text.set("format", std::move(form));
    out.set("id", head_.id).set("object", "response").set("created_at", head_.created).set("status", status);
    out.set("error", Json()).set("incomplete_details", status == "incomplete" ? std::move(why) : Json());
    out.set("instructions", request_.instructions).set("max_output_tokens", request_.max_output_tokens);
    out.set("model", head_.model).set("output", std::move(output)).set("parallel_tool_calls", false);
    out.set("previous_response_id", request_.previous).set("store", request_.store);
    out.set("temperature", request_.temperature).set("top_p", request_.top_p).set("text", std::move(text));
    out.set("tool_choice", "none").set("tools", Json::array()).set("truncation", "disabled");
    out.set("usage", std::move(counts)).set("metadata", Json::object());
    return out;
  }

  AnswerHead head_;
  ResponseRequest request_;
  std::string message_id_;
  Keep keep_;
  std::int64_t sequence_ = 0;
};

}  // namespace responses_format

std::unique_ptr<AnswerFormat> response_format(AnswerHead head, ResponseRequest request,
                                              std::string message_id, responses_format::Keep keep) {
  return std::make_unique<responses_format::Format>(std::move(head), std::move(request),
                                                    std::move(message_id), std::move(keep));
}

}  // namespace kvtide::serve
