#include "serve/routes/responses_format.h"

#include <utility>

namespace kvtide::serve {
namespace responses_format {

using Keep = std::function<void(const Written&, const std::string&)>;

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
    keep_(choices[0], body);
    return body;
  }
  std::string opening(const AnswerFigures&) override {
    std::string out = state("response.created", response("in_progress"));
    return out + state("response.in_progress", response("in_progress"));
  }
  std::string piece(const AnswerPiece& piece) override {
    if (piece.text.empty()) return "";
    const std::string begun = begin_message();
    Json out = event("response.output_text.delta");
    place(out).set("delta", piece.text).set("logprobs", Json::array());
    return begun + server_event(out, "response.output_text.delta");
  }
  std::string call_begun(const Written& choice) override {
    const std::string ended = end_message(choice);
    Json item = event("response.output_item.added");
    item.set("output_index", items_).set("item", call_item(choice.calls.back(), "in_progress"));
    return ended + server_event(item, "response.output_item.added");
  }
  std::string call_grew(const Written& choice, const std::string& piece) override {
    Json out = event("response.function_call_arguments.delta");
    out.set("item_id", "fc_" + choice.calls.back().id).set("output_index", items_).set("delta", piece);
    return server_event(out, "response.function_call_arguments.delta");
  }
  std::string call_ended(const Written& choice) override {
    const ToolCall& call = choice.calls.back();
    Json out = event("response.function_call_arguments.done");
    out.set("item_id", "fc_" + call.id).set("output_index", items_).set("name", call.name);
    out.set("arguments", call.arguments);
    Json item = event("response.output_item.done");
    item.set("output_index", items_++).set("item", call_item(call, "completed"));
    return server_event(out, "response.function_call_arguments.done") +
           server_event(item, "response.output_item.done");
  }
  std::string ended(const Written& choice) override {
    std::string out;
    if (items_ == 0) out = begin_message();
    return out += end_message(choice);
  }
  std::string closing(const std::vector<Written>& choices, const AnswerFigures& figures) override {
    keep_(choices[0], complete(choices[0], figures).text(false));
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
    return event.set("item_id", message_id_).set("output_index", message_at_).set("content_index", 0);
  }
  // An answer has one message: text behind a call goes on with it.
  std::string begin_message() {
    if (in_message_ || has_message_) return "";
    in_message_ = has_message_ = true;
    message_at_ = items_;
    Json item = event("response.output_item.added");
    item.set("output_index", message_at_).set("item", message("in_progress", Json::array()));
    Json part = event("response.content_part.added");
    place(part).set("part", text_part(""));
    return server_event(item, "response.output_item.added") +
           server_event(part, "response.content_part.added");
  }
  std::string end_message(const Written& choice) {
    if (!in_message_) return "";
    in_message_ = false;
    Json text = event("response.output_text.done");
    place(text).set("text", choice.text).set("logprobs", Json::array());
    Json part = event("response.content_part.done");
    place(part).set("part", text_part(choice.text));
    Json item = event("response.output_item.done"), content = Json::array();
    content.push(text_part(choice.text));
    item.set("output_index", items_++).set("item", message("completed", std::move(content)));
    return server_event(text, "response.output_text.done") +
           server_event(part, "response.content_part.done") + server_event(item, "response.output_item.done");
  }
  static Json call_item(const ToolCall& call, const char* status) {
    Json out = Json::object();
    out.set("type", "function_call")
        .set("id", "fc_" + call.id)
        .set("call_id", call.id)
        .set("name", call.name);
    return std::move(out.set("arguments", call.arguments).set("status", status));
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
    Json output = Json::array();
    if (!choice.text.empty() || choice.calls.empty()) {
      Json content = Json::array();
      content.push(text_part(choice.text));
      output.push(message("completed", std::move(content)));
    }
    for (const ToolCall& call : choice.calls) output.push(call_item(call, "completed"));
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
    out.set("model", head_.model)
        .set("output", std::move(output))
        .set("parallel_tool_calls", request_.tools.parallel);
    out.set("previous_response_id", request_.previous).set("store", request_.store);
    out.set("temperature", request_.temperature).set("top_p", request_.top_p).set("text", std::move(text));
    Json tools = Json::array();
    for (const OfferedTool& tool : request_.tools.tools) tools.push(tool_object(tool));
    out.set("tool_choice", tool_choice()).set("tools", std::move(tools)).set("truncation", "disabled");
    out.set("usage", std::move(counts)).set("metadata", Json::object());
    return out;
  }

  static Json tool_object(const OfferedTool& tool) {
    Json out = Json::object();
    out.set("type", "function").set("name", tool.name).set("strict", false);
    return std::move(out.set("parameters", Json(JsonValue::parse(tool.parameters, "parameters"))));
  }
  Json tool_choice() const {
    if (!request_.tools.named.empty()) {
      Json out = Json::object();
      return std::move(out.set("type", "function").set("name", request_.tools.named));
    }
    switch (request_.tools.choice) {
      case ToolRequest::Choice::required:
        return "required";
      case ToolRequest::Choice::none:
        return "none";
      default:
        return "auto";
    }
  }

  AnswerHead head_;
  ResponseRequest request_;
  std::string message_id_;
  Keep keep_;
  std::int64_t sequence_ = 0;
  int items_ = 0, message_at_ = 0;  // output items that are complete; the message's
  bool in_message_ = false, has_message_ = false;
};

}  // namespace responses_format

std::unique_ptr<AnswerFormat> response_format(AnswerHead head, ResponseRequest request,
                                              std::string message_id, responses_format::Keep keep) {
  return std::make_unique<responses_format::Format>(std::move(head), std::move(request),
                                                    std::move(message_id), std::move(keep));
}

}  // namespace kvtide::serve
