#include "serve/routes/responses.h"

#include <utility>

#include "base/text.h"
#include "serve/routes/answer_grammar.h"
#include "serve/routes/chat_messages.h"
#include "serve/routes/chat_prompt.h"
#include "serve/routes/memory_fields.h"
#include "serve/routes/request_fields.h"
#include "serve/routes/responses_format.h"

namespace kvtide::serve {
namespace responses {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;

std::string_view id_of(const Request& request) {
  return request.path().substr(std::string_view("/v1/responses/").size());
}

[[noreturn]] void no_such(std::string_view id) {
  throw Error(ErrorCode::not_found, cat("there is no response ", quoted(id)));
}

void refuse_what_is_not_there(const Fields& fields) {
  if (fields.flag("background").value_or(false))
    refuse_unsupported(fields, "background", "answers are given to the request that asks for them");
  if (fields.has("conversation"))
    refuse_unsupported(fields, "conversation", "go on from an answer by previous_response_id");
}

// The conversation that this request goes on from, and what it adds.
std::vector<ChatMessage> conversation_of(Service& service, const Fields& fields,
                                         const ResponseRequest& about) {
  std::vector<ChatMessage> out;
  if (about.previous) {
    auto stored = service.responses().find(*about.previous);
    if (!stored)
      throw Error(ErrorCode::not_found,
                  cat("previous_response_id: there is no response ", quoted(*about.previous)));
    out = std::move(stored->conversation);
  }
  read_items(fields, "input", out);
  return out;
}

}  // namespace responses

void create_response(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const JsonValue body = parse_body(request.body);
  const Fields fields(body);
  const std::size_t model = service.model_of(fields);
  const ServedModel& served = service.models()[model];
  responses::refuse_what_is_not_there(fields);
  AnswerSpec spec;
  spec.sampler.temperature = 1.0f;
  spec.sampler.top_p = 1.0f;
  spec.sampler.seed = service.new_seed();
  read_sampling(fields, spec);
  ResponseRequest about;
  about.instructions = fields.text("instructions");
  about.previous = fields.text("previous_response_id");
  about.max_output_tokens = fields.whole("max_output_tokens", 1, responses::kMostTokens);
  about.temperature = static_cast<double>(spec.sampler.temperature);
  about.top_p = static_cast<double>(spec.sampler.top_p);
  about.store = fields.flag("store").value_or(true);
  spec.max_tokens = about.max_output_tokens.value_or(-1);
  spec.key = read_key(fields, request.header("x-session-id"),
                      fields.text("prompt_cache_key").value_or(fields.text("user").value_or("")));
  const bool stream = fields.flag("stream").value_or(false);
  std::vector<ChatMessage> conversation = responses::conversation_of(service, fields, about);
  std::vector<ChatMessage> prompted = conversation;
  if (about.instructions) prompted.insert(prompted.begin(), {"system", *about.instructions});
  const ToolRequest tools = read_tools(fields, ToolStyle::responses);
  ChatPrompt prompt = service.chat(model).prompt(prompted, tools);
  prompt.move_into(spec);
  read_memory(fields, service, model, spec, prompt.before_user);
  const std::optional<Fields> text = fields.child("text");
  const auto format = read_format(text ? text->child("format") : std::nullopt);
  service.constrain(model, prompt.grammar ? prompt.grammar : format, spec);
  about.tools = tools;
  AnswerHead head{service.new_id("resp_"), served.name, Service::now(), &served.model->tokenizer(), false};
  const auto keep = [&service, id = head.id, store = about.store, conversation = std::move(conversation)](
                        const Written& answer, const std::string& whole) {
    if (!store) return;
    StoredResponse stored{id, whole, conversation};
    stored.conversation.push_back(calling(answer.text, answer.calls));
    service.responses().keep(std::move(stored));
  };
  service.answer(model, std::move(spec),
                 response_format(std::move(head), std::move(about), service.new_id("msg_"), keep), stream,
                 reply, std::move(prompt.tools));
}

void get_response(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  auto stored = service.responses().find(responses::id_of(request));
  if (!stored) responses::no_such(responses::id_of(request));
  reply->send({200, "application/json", std::move(stored->body)});
}

void delete_response(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const std::string id(responses::id_of(request));
  if (!service.responses().drop(id)) responses::no_such(id);
  Json out = Json::object();
  out.set("id", id).set("object", "response").set("deleted", true);
  reply->send({200, "application/json", out.text(false)});
}

}  // namespace kvtide::serve
