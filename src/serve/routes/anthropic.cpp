#include "serve/routes/anthropic.h"

#include <utility>

#include "base/text.h"
#include "serve/routes/answer_grammar.h"
#include "serve/routes/chat_messages.h"
#include "serve/routes/chat_prompt.h"
#include "serve/routes/memory_fields.h"
#include "serve/routes/request_fields.h"

namespace kvtide::serve {
namespace anthropic {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;

const char* stop_reason(const Written& choice) {
  if (choice.waits_for_tools()) return "tool_use";
  switch (choice.reason) {
    case StopReason::max_tokens:
    case StopReason::context_full:
      return "max_tokens";
    case StopReason::stop_string:
      return "stop_sequence";
    default:
      return "end_turn";
  }
}

Json stop_sequence(const Written& choice) {
  return choice.reason == StopReason::stop_string ? Json(choice.stop) : Json();
}

Json usage(const AnswerFigures& figures) {
  Json out = Json::object();
  out.set("input_tokens", figures.prompt_tokens - figures.cached_tokens);
  out.set("cache_read_input_tokens", figures.cached_tokens).set("cache_creation_input_tokens", 0);
  out.set("output_tokens", figures.written_tokens);
  return out;
}

// The arguments as an object; what was cut off is none.
Json input_of(const ToolCall& call) {
  try {
    JsonValue input = JsonValue::parse(call.arguments, "arguments");
    if (input.object() != nullptr) return Json(std::move(input));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::out_of_memory) throw;
  }
  return Json::object();
}

class Format final : public AnswerFormat {
 public:
  explicit Format(AnswerHead head) : head_(std::move(head)) {}

  Dialect dialect() const override { return Dialect::anthropic; }
  std::string whole(const std::vector<Written>& choices, const AnswerFigures& figures) override {
    Json content = Json::array();
    if (!choices[0].text.empty() || choices[0].calls.empty()) content.push(text_block(choices[0].text));
    for (const ToolCall& call : choices[0].calls)
      content.push(tool_block(call.id, call.name, input_of(call)));
    return message(std::move(content), stop_reason(choices[0]), stop_sequence(choices[0]), figures)
        .text(false);
  }
  std::string opening(const AnswerFigures& figures) override {
    Json start = typed("message_start");
    start.set("message", message(Json::array(), Json(), Json(), figures));
    return server_event(start, "message_start") + server_event(typed("ping"), "ping");
  }
  std::string piece(const AnswerPiece& piece) override {
    if (piece.text.empty()) return "";
    std::string begun;
    if (!in_text_) {
      begun = end_block();
      begun += begin_block(text_block(""));
    }
    in_text_ = true;
    Json delta = typed("text_delta");
    return begun + block_delta(std::move(delta.set("text", piece.text)));
  }
  std::string call_begun(const Written& choice) override {
    const ToolCall& call = choice.calls.back();
    std::string out = end_block();
    return out += begin_block(tool_block(call.id, call.name, Json::object()));
  }
  std::string call_grew(const Written&, const std::string& piece) override {
    Json delta = typed("input_json_delta");
    return block_delta(std::move(delta.set("partial_json", piece)));
  }
  std::string call_ended(const Written&) override { return end_block(); }
  std::string ended(const Written&) override {
    std::string out;
    if (blocks_ == 0) out = begin_block(text_block(""));
    return out += end_block();
  }
  std::string closing(const std::vector<Written>& choices, const AnswerFigures& figures) override {
    Json out = typed("message_delta"), delta = Json::object(), counts = Json::object();
    delta.set("stop_reason", stop_reason(choices[0])).set("stop_sequence", stop_sequence(choices[0]));
    out.set("delta", std::move(delta))
        .set("usage", std::move(counts.set("output_tokens", figures.written_tokens)));
    return server_event(out, "message_delta") + server_event(typed("message_stop"), "message_stop");
  }
  std::string problem(const Problem& problem) override {
    return "event: error\ndata: " + problem_body(problem, dialect()) + "\n\n";
  }

 private:
  static Json typed(const char* type) {
    Json out = Json::object();
    out.set("type", type);
    return out;
  }
  std::string begin_block(Json block) {
    in_block_ = true;
    Json out = typed("content_block_start");
    out.set("index", blocks_++).set("content_block", std::move(block));
    return server_event(out, "content_block_start");
  }
  std::string block_delta(Json delta) const {
    Json out = typed("content_block_delta");
    out.set("index", blocks_ - 1).set("delta", std::move(delta));
    return server_event(out, "content_block_delta");
  }
  std::string end_block() {
    if (!in_block_) return "";
    in_block_ = in_text_ = false;
    Json out = typed("content_block_stop");
    return server_event(out.set("index", blocks_ - 1), "content_block_stop");
  }
  static Json tool_block(const std::string& id, const std::string& name, Json input) {
    Json out = typed("tool_use");
    out.set("id", id).set("name", name).set("input", std::move(input));
    return out;
  }
  static Json text_block(const std::string& text) {
    Json out = typed("text");
    out.set("text", text);
    return out;
  }
  Json message(Json content, Json reason, Json sequence, const AnswerFigures& figures) const {
    Json out = Json::object();
    out.set("id", head_.id).set("type", "message").set("role", "assistant").set("model", head_.model);
    out.set("content", std::move(content)).set("stop_reason", std::move(reason));
    out.set("stop_sequence", std::move(sequence)).set("usage", usage(figures));
    return out;
  }

  AnswerHead head_;
  int blocks_ = 0;  // begun
  bool in_block_ = false, in_text_ = false;
};

ChatPrompt prompt_of(const Fields& fields, const ServedChat& chat) {
  const ToolRequest tools = read_tools(fields, ToolStyle::messages);
  std::vector<ChatMessage> conversation = read_blocks(fields, "messages");
  if (fields.has("system"))
    conversation.insert(conversation.begin(), {"system", read_content(fields, "system")});
  return chat.prompt(conversation, tools);
}

}  // namespace anthropic

void messages(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const JsonValue body = parse_body(request.body);
  const Fields fields(body);
  const std::size_t model = service.model_of(fields);
  const ServedModel& served = service.models()[model];
  AnswerSpec spec;
  spec.sampler.temperature = 1.0f;
  spec.sampler.top_p = 1.0f;
  spec.sampler.seed = service.new_seed();
  read_sampling(fields, spec);
  read_stop(fields, "stop_sequences", spec);
  spec.max_tokens = fields.required_whole("max_tokens", 1, anthropic::kMostTokens);
  const bool stream = fields.flag("stream").value_or(false);
  if (const auto thinking = fields.child("thinking"))
    if (thinking->text("type").value_or("disabled") != "disabled")
      refuse_unsupported(fields, "thinking", "thinking cannot be switched on");
  ChatPrompt prompt = anthropic::prompt_of(fields, service.chat(model));
  prompt.move_into(spec);
  const auto format = read_format(fields.child("output_format"));
  service.constrain(model, prompt.grammar ? prompt.grammar : format, spec);
  const auto metadata = fields.child("metadata");
  spec.key = read_key(fields, request.header("x-session-id"),
                      metadata ? metadata->text("user_id").value_or("") : std::string());
  read_memory(fields, service, model, spec, prompt.before_user);
  AnswerHead head{service.new_id("msg_"), served.name, Service::now(), &served.model->tokenizer(), false};
  service.answer(model, std::move(spec), std::make_unique<anthropic::Format>(std::move(head)), stream, reply,
                 std::move(prompt.tools));
}

void count_tokens(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const JsonValue body = parse_body(request.body);
  const Fields fields(body);
  const ChatPrompt prompt = anthropic::prompt_of(fields, service.chat(service.model_of(fields)));
  Json out = Json::object();
  out.set("input_tokens", prompt.tokens.size());
  reply->send({200, "application/json", out.text(false)});
}

}  // namespace kvtide::serve
