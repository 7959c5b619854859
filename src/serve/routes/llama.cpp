#include "serve/routes/llama.h"

#include <utility>

#include "base/text.h"
#include "serve/routes/answer_grammar.h"
#include "serve/routes/chat_messages.h"
#include "serve/routes/chat_prompt.h"
#include "serve/routes/memory_fields.h"
#include "serve/routes/request_fields.h"
#include "text/utf8.h"

namespace kvtide::serve {
namespace llama {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;

const char* stop_type(StopReason reason) {
  switch (reason) {
    case StopReason::max_tokens:
    case StopReason::context_full:
      return "limit";
    case StopReason::stop_string:
      return "word";
    default:
      return "eos";
  }
}

Json timings(const AnswerFigures& f) {
  const auto rate = [](std::int64_t tokens, double ms) {
    return ms > 0.0 ? 1e3 * static_cast<double>(tokens) / ms : 0.0;
  };
  const std::int64_t read = f.prompt_tokens - f.cached_tokens;
  Json out = Json::object();
  out.set("cache_n", f.cached_tokens).set("prompt_n", read).set("prompt_ms", f.prompt_ms);
  out.set("prompt_per_second", rate(read, f.prompt_ms)).set("predicted_n", f.written_tokens);
  out.set("predicted_ms", f.writing_ms).set("predicted_per_second", rate(f.written_tokens, f.writing_ms));
  return out;
}

class Format final : public AnswerFormat {
 public:
  explicit Format(AnswerHead head) : head_(std::move(head)) {}

  std::string whole(const std::vector<Written>& choices, const AnswerFigures& figures) override {
    return last(choices[0], choices[0].text, figures).text(false);
  }
  std::string opening(const AnswerFigures&) override { return ""; }
  std::string piece(const AnswerPiece& piece) override {
    if (piece.text.empty()) return "";
    Json out = Json::object();
    out.set("index", 0).set("content", piece.text).set("tokens", Json::array(piece.tokens));
    return server_event(out.set("stop", false));
  }
  std::string ended(const Written&) override { return ""; }
  std::string closing(const std::vector<Written>& choices, const AnswerFigures& figures) override {
    return server_event(last(choices[0], "", figures));
  }
  std::string problem(const Problem& problem) override {
    return "data: " + problem_body(problem, dialect()) + "\n\n";
  }

 private:
  Json last(const Written& choice, const std::string& text, const AnswerFigures& f) const {
    Json out = Json::object();
    out.set("index", 0).set("content", text).set("tokens", Json::array(choice.tokens)).set("stop", true);
    out.set("stop_type", stop_type(choice.reason))
        .set("stopping_word", choice.stop)
        .set("model", head_.model);
    out.set("tokens_predicted", f.written_tokens).set("tokens_evaluated", f.prompt_tokens);
    out.set("tokens_cached", f.prompt_tokens + f.written_tokens).set("truncated", false);
    out.set("timings", timings(f));
    return out;
  }

  AnswerHead head_;
};

}  // namespace llama

void llama_completion(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const JsonValue body = parse_body(request.body);
  const Fields fields(body);
  const std::size_t model = service.model_of(fields);
  const ServedModel& served = service.models()[model];
  AnswerSpec spec;
  spec.sampler.temperature = 0.8f;  // as llama-server's
  spec.sampler.seed = service.new_seed();
  read_sampling(fields, spec);
  read_stop(fields, "stop", spec);
  if (const auto most = fields.whole("n_predict", -1, llama::kMostTokens)) spec.max_tokens = *most;
  spec.ignore_end = fields.flag("ignore_eos").value_or(false);
  if (const auto count = fields.whole("n_probs", 0, 1000); count && *count > 0)
    refuse_unsupported(fields, "n_probs", "probabilities are given by /v1/completions (logprobs)");
  spec.prompt = read_prompt(fields, "prompt", served.model->tokenizer());
  service.constrain(model, read_llama_grammar(fields), spec);
  spec.key = read_key(fields, request.header("x-session-id"), "");
  read_memory(fields, service, model, spec);
  const bool stream = fields.flag("stream").value_or(false);
  AnswerHead head{"", served.name, Service::now(), &served.model->tokenizer(), false};
  service.answer(model, std::move(spec), std::make_unique<llama::Format>(std::move(head)), stream, reply);
}

void tokenize(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const JsonValue body = parse_body(request.body);
  const Fields fields(body);
  const Tokenizer& tokenizer = service.models()[service.model_of(fields)].model->tokenizer();
  const std::string content = fields.required_text("content");
  if (find_invalid_utf8(content)) fields.refuse("content", "is not valid UTF-8");
  EncodeOptions options;
  options.add_bos = fields.flag("add_special").value_or(false) && tokenizer.adds_bos();
  options.parse_special = fields.flag("parse_special").value_or(true);
  const std::vector<TokenId> ids = tokenizer.encode(content, options);
  Json list = Json::array(), out = Json::object();
  const bool with_pieces = fields.flag("with_pieces").value_or(false);
  for (const TokenId id : ids) {
    Json one = Json::object();
    if (with_pieces) one.set("id", id).set("piece", tokenizer.piece(id, true));
    list.push(with_pieces ? std::move(one) : Json(id));
  }
  reply->send({200, "application/json", out.set("tokens", std::move(list)).text(false)});
}

void detokenize(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const JsonValue body = parse_body(request.body);
  const Fields fields(body);
  const Tokenizer& tokenizer = service.models()[service.model_of(fields)].model->tokenizer();
  static_cast<void>(fields.required_list("tokens"));
  const std::vector<TokenId> ids = read_prompt(fields, "tokens", tokenizer);
  Json out = Json::object();
  out.set("content", tokenizer.decode(ids, true));
  reply->send({200, "application/json", out.text(false)});
}

void apply_template(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const JsonValue body = parse_body(request.body);
  const Fields fields(body);
  const ServedChat& chat = service.chat(service.model_of(fields));
  Json out = Json::object();
  out.set("prompt", chat.text(read_messages(fields, "messages"), read_tools(fields, ToolStyle::chat)));
  reply->send({200, "application/json", out.text(false)});
}

void props(Service& service, const Request&, const std::shared_ptr<Reply>& reply) {
  const ServedModel& served = service.models()[0];
  const WorkOptions& work = service.options().work;
  const std::int64_t context = work.context > 0 ? work.context : served.model->context_length();
  Json settings = Json::object(), out = Json::object();
  settings.set("n_ctx", context);
  out.set("default_generation_settings", std::move(settings)).set("total_slots", work.parallel);
  out.set("model_alias", served.name).set("chat_template", served.model->chat_template());
  out.set("build_info", cat("kvtide ", service.options().version)).set("is_sleeping", false);
  out.set("kv_budget_bytes", work.kv_budget).set("queue", work.queue);
  reply->send({200, "application/json", out.text(false)});
}

}  // namespace kvtide::serve
