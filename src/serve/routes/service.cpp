#include "serve/routes/service.h"

#include <chrono>
#include <utility>

#include "base/text.h"

namespace kvtide::serve {
namespace service {

std::vector<const Model*> plain(const std::vector<ServedModel>& models) {
  std::vector<const Model*> out;
  for (const ServedModel& served : models) out.push_back(served.model);
  return out;
}

std::vector<ServedChat> chats_of(const std::vector<ServedModel>& models, const std::string& named) {
  std::vector<ServedChat> out;
  for (const ServedModel& served : models) out.emplace_back(*served.model, named);
  return out;
}

std::uint64_t first_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace service

Service::Service(std::vector<ServedModel> models, ServiceOptions options)
    : models_(std::move(models)),
      options_(std::move(options)),
      chats_(service::chats_of(models_, options_.chat_template)),
      tries_(models_.size()),
      started_(now()),
      random_(service::first_seed()),
      scheduler_(service::plain(models_), options_.work) {}

std::size_t Service::model_of(const Fields& fields) const {
  const std::optional<std::string> name = fields.text("model");
  if (!name || name->empty()) return 0;
  std::string known;
  for (std::size_t i = 0; i < models_.size(); ++i) {
    if (models_[i].name == *name) return i;
    known += cat(i == 0 ? "" : ", ", models_[i].name);
  }
  throw Error(ErrorCode::not_found, cat("model: there is no model ", quoted(*name), "; there are ", known));
}

void Service::constrain(std::size_t model, const std::optional<grammar::Grammar>& grammar, AnswerSpec& spec) {
  if (!grammar) return;
  std::shared_ptr<const grammar::TokenTrie> trie;
  {
    const std::lock_guard lock(mutex_);
    if (!tries_[model])
      tries_[model] = std::make_shared<const grammar::TokenTrie>(models_[model].model->tokenizer());
    trie = tries_[model];
  }
  spec.constraint = std::make_shared<grammar::Constraint>(*grammar, std::move(trie));
}

std::uint64_t Service::new_seed() {
  const std::lock_guard lock(mutex_);
  return random_();
}

std::string Service::new_id(std::string_view prefix) {
  std::uint64_t bits = new_seed();
  std::string out(prefix);
  for (int i = 0; i < 16; ++i, bits >>= 4) out += "0123456789abcdef"[bits & 15];
  return out;
}

std::int64_t Service::now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

void Service::answer(std::size_t model, AnswerSpec spec, std::unique_ptr<AnswerFormat> format, bool stream,
                     const std::shared_ptr<Reply>& reply, std::optional<ToolUse> tools) {
  // Nine letters and digits: Mistral's templates take no other ids.
  if (tools) tools->new_id = [this] { return new_id("").substr(0, 9); };
  const Dialect dialect = format->dialect();
  const int choices = spec.choices;
  const auto busy = scheduler_.submit(model, std::move(spec),
                                      answer_to(reply, std::move(format), choices, stream, std::move(tools)));
  if (!busy) return;
  Problem problem{429, busy->reason};
  problem.retry_after = busy->retry_after;
  problem.code = "overloaded";
  reply->send(problem_response(problem, dialect));
}

}  // namespace kvtide::serve
