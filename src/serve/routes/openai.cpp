#include "serve/routes/openai.h"

#include <utility>

#include "base/text.h"
#include "serve/routes/answer_grammar.h"
#include "serve/routes/chat_messages.h"
#include "serve/routes/chat_prompt.h"
#include "serve/routes/memory_fields.h"
#include "serve/routes/openai_format.h"
#include "serve/routes/request_fields.h"

namespace kvtide::serve {
namespace openai {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;
constexpr int kMostChoices = 16, kMostLogprobs = 20;

AnswerSpec spec_of(Service& service, const Fields& fields, const Request& request) {
  AnswerSpec spec;
  spec.sampler.temperature = 1.0f;
  spec.sampler.top_p = 1.0f;
  spec.sampler.seed = service.new_seed();
  read_sampling(fields, spec);
  read_stop(fields, "stop", spec);
  if (const auto n = fields.whole("n", 1, kMostChoices)) spec.choices = static_cast<int>(*n);
  for (const char* name : {"max_tokens", "max_completion_tokens"})
    if (const auto most = fields.whole(name, 0, kMostTokens)) spec.max_tokens = *most;
  spec.ignore_end = fields.flag("ignore_eos").value_or(false);
  // Whoever says who they are takes turns with the others.
  spec.key = read_key(fields, request.header("x-session-id"),
                      fields.text("prompt_cache_key").value_or(fields.text("user").value_or("")));
  return spec;
}

bool include_usage(const Fields& fields) {
  const std::optional<Fields> options = fields.child("stream_options");
  return options && options->flag("include_usage").value_or(false);
}

void refuse_what_is_not_there(const Fields& fields) {
  if (const auto* functions = fields.list("functions"); functions != nullptr && !functions->empty())
    refuse_unsupported(fields, "functions", "functions are given as tools");
  if (const auto modalities = fields.list("modalities"))
    for (const JsonValue& item : *modalities)
      if (item.text() == nullptr || *item.text() != "text")
        refuse_unsupported(fields, "modalities", "only text is written");
}

void read_chat_logprobs(const Fields& fields, AnswerSpec& spec) {
  const bool wanted = fields.flag("logprobs").value_or(false);
  const auto top = fields.whole("top_logprobs", 0, kMostLogprobs);
  if (top && !wanted) fields.refuse("top_logprobs", "needs logprobs: true");
  if (wanted) spec.top_logprobs = static_cast<int>(top.value_or(0));
}

AnswerHead head_of(Service& service, std::size_t model, const char* prefix, const AnswerSpec& spec) {
  const ServedModel& served = service.models()[model];
  return {service.new_id(prefix), served.name, Service::now(), &served.model->tokenizer(),
          spec.top_logprobs >= 0};
}

}  // namespace openai

void chat_completions(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const JsonValue body = parse_body(request.body);
  const Fields fields(body);
  const std::size_t model = service.model_of(fields);
  AnswerSpec spec = openai::spec_of(service, fields, request);
  openai::refuse_what_is_not_there(fields);
  openai::read_chat_logprobs(fields, spec);
  const bool stream = fields.flag("stream").value_or(false), usage = openai::include_usage(fields);
  const ToolRequest tools = read_tools(fields, ToolStyle::chat);
  ChatPrompt prompt = service.chat(model).prompt(read_messages(fields, "messages"), tools);
  prompt.move_into(spec);
  read_memory(fields, service, model, spec, prompt.before_user);
  const auto format = read_format(fields.child("response_format"));
  service.constrain(model, prompt.grammar ? prompt.grammar : format, spec);
  AnswerHead head = openai::head_of(service, model, "chatcmpl-", spec);
  service.answer(model, std::move(spec), chat_format(std::move(head), usage), stream, reply,
                 std::move(prompt.tools));
}

void completions(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const JsonValue body = parse_body(request.body);
  const Fields fields(body);
  const std::size_t model = service.model_of(fields);
  const Tokenizer& tokenizer = service.models()[model].model->tokenizer();
  AnswerSpec spec = openai::spec_of(service, fields, request);
  openai::refuse_what_is_not_there(fields);
  if (spec.max_tokens < 0) spec.max_tokens = 16;  // as OpenAI does
  if (fields.has("suffix")) refuse_unsupported(fields, "suffix", "text is only written behind the prompt");
  if (const auto best = fields.whole("best_of", 1, openai::kMostChoices); best && *best != spec.choices)
    refuse_unsupported(fields, "best_of", "every choice is returned; use n");
  if (const auto top = fields.whole("logprobs", 0, openai::kMostLogprobs))
    spec.top_logprobs = static_cast<int>(*top);
  const bool stream = fields.flag("stream").value_or(false), usage = openai::include_usage(fields);
  spec.prompt = read_prompt(fields, "prompt", tokenizer);
  service.constrain(model, read_format(fields.child("response_format")), spec);
  std::string echo;
  if (fields.flag("echo").value_or(false)) {
    if (spec.top_logprobs >= 0)
      refuse_unsupported(fields, "echo",
                         "log probabilities of the prompt are not supported; leave out one of the two");
    echo = tokenizer.decode(spec.prompt);
  }
  read_memory(fields, service, model, spec);
  AnswerHead head = openai::head_of(service, model, "cmpl-", spec);
  service.answer(model, std::move(spec), text_format(std::move(head), usage, std::move(echo)), stream, reply);
}

}  // namespace kvtide::serve
