#include "serve/routes/states.h"

#include <charconv>
#include <utility>

#include "base/stopwatch.h"
#include "base/text.h"
#include "serve/routes/request_fields.h"
#include "state/state_object.h"

namespace kvtide::serve {
namespace states {

using Entry = PrefixCache::Entry;

std::int64_t number_in(std::string_view path, std::string_view front) {
  const std::string_view text = path.substr(front.size());
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    throw Error(ErrorCode::not_found, cat(quoted(path), ": a number belongs behind ", front));
  return number;
}

// Numbers are of all caches together: the model's, then the entry's.
std::int64_t number_of(std::size_t model, const Entry& entry, std::size_t models) {
  return entry.id * static_cast<std::int64_t>(models) + static_cast<std::int64_t>(model);
}

Json object_of(const Service& service, std::size_t model, const Entry& entry) {
  Json out = Json::object();
  out.set("id", number_of(model, entry, service.models().size())).set("model", service.models()[model].name);
  out.set("tokens", entry.state.position()).set("kv_bytes", entry.state.held_bytes());
  out.set("kv_shared_bytes", entry.state.shared_bytes()).set("hits", entry.hits).set("key", entry.key);
  return out;
}

std::string checked_name(const Fields& fields, const ServiceOptions& options) {
  if (options.states_folder.empty())
    throw Error(ErrorCode::unsupported, "files of slots need a folder: kvtide serve --slot-save-path FOLDER");
  std::string name = fields.required_text("filename");
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  if (name.empty() || name.size() > 128 || name[0] == '.' || name.find_first_not_of(kLetters) != name.npos)
    fields.refuse("filename", "must be a name of letters, digits, dots, dashes and underscores, not a path");
  return name;
}

// What a request with this key left last, as a fork.
std::optional<State> newest_of(Scheduler& scheduler, std::size_t model, const std::string& key) {
  std::optional<State> out;
  scheduler.between_steps([&](std::vector<Lane>& lanes) {
    const Entry* newest = nullptr;
    for (const Entry& entry : lanes[model].cache().entries())
      if (entry.key == key && (newest == nullptr || entry.used > newest->used)) newest = &entry;
    if (newest != nullptr) out.emplace(newest->state.fork());
  });
  return out;
}

struct File {
  std::int64_t slot;
  std::size_t model;
  std::string name, path;
};

Response save(Service& service, const File& file) {
  const Stopwatch watch;
  std::optional<State> state = newest_of(service.scheduler(), file.model, slot_key(file.slot));
  if (!state)
    throw Error(ErrorCode::not_found, cat("slot ", file.slot, " holds nothing: no request with id_slot ",
                                          file.slot, " has left its memory"));
  state->set_identity(service.models()[file.model].model->identity(service.options().states_folder));
  state->save(file.path);
  Json out = Json::object(), times = Json::object();
  times.set("save_ms", watch.ms());
  out.set("id_slot", file.slot).set("filename", file.name).set("n_saved", state->position());
  return {200, "application/json", out.set("timings", std::move(times)).text(false)};
}

Response restore(Service& service, const File& file) {
  const Stopwatch watch;
  State state = State::load(file.path);
  const Model& model = *service.models()[file.model].model;
  if (state.identity() != model.identity(service.options().states_folder))
    throw Error(ErrorCode::invalid_argument,
                cat("filename: ", quoted(file.name), " belongs to another model"));
  if (state.internals().extras.exact != service.options().work.exact || state.budget() ||
      state.shape().rolling || state.attention_size())
    throw Error(ErrorCode::invalid_argument,
                cat("filename: ", quoted(file.name),
                    " was not computed as this server computes: a full cache, with its --exact"));
  state.set_identity({});  // of this model, from here on
  const std::int64_t tokens = state.position();
  service.scheduler().keep(file.model, std::move(state), slot_key(file.slot));
  Json out = Json::object(), times = Json::object();
  times.set("restore_ms", watch.ms());
  out.set("id_slot", file.slot).set("filename", file.name).set("n_restored", tokens);
  return {200, "application/json", out.set("timings", std::move(times)).text(false)};
}

Response erase(Service& service, std::int64_t slot, std::size_t model) {
  std::int64_t erased = 0;
  service.scheduler().between_steps([&](std::vector<Lane>& lanes) {
    PrefixCache& cache = lanes[model].cache();
    std::vector<std::int64_t> ids;
    for (const Entry& entry : cache.entries())
      if (entry.key == slot_key(slot)) {
        ids.push_back(entry.id);
        erased += entry.state.position();
      }
    for (const std::int64_t id : ids) cache.drop(id);
  });
  Json out = Json::object();
  out.set("id_slot", slot).set("n_erased", erased);
  return {200, "application/json", out.text(false)};
}

}  // namespace states

void list_states(Service& service, const Request&, const std::shared_ptr<Reply>& reply) {
  Json data = Json::array(), out = Json::object();
  service.scheduler().between_steps([&](std::vector<Lane>& lanes) {
    for (std::size_t model = 0; model < lanes.size(); ++model)
      for (const auto& entry : lanes[model].cache().entries())
        data.push(states::object_of(service, model, entry));
  });
  out.set("object", "list").set("data", std::move(data));
  reply->send({200, "application/json", out.text(false)});
}

void one_state(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const std::int64_t number = states::number_in(request.path(), "/states/");
  const std::size_t models = service.models().size(), model = static_cast<std::size_t>(number) % models;
  std::optional<Json> out;
  std::vector<TokenId> tokens;
  service.scheduler().between_steps([&](std::vector<Lane>& lanes) {
    const auto* entry = lanes[model].cache().at(number / static_cast<std::int64_t>(models));
    if (entry == nullptr) return;
    out.emplace(states::object_of(service, model, *entry));
    tokens = entry->state.tokens();
  });
  if (!out) throw Error(ErrorCode::not_found, cat("there is no state ", number));
  out->set("text", service.models()[model].model->tokenizer().decode(tokens, true));
  reply->send({200, "application/json", out->text(false)});
}

void drop_state(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const std::int64_t number = states::number_in(request.path(), "/states/");
  const auto models = static_cast<std::int64_t>(service.models().size());
  bool dropped = false;
  service.scheduler().between_steps([&](std::vector<Lane>& lanes) {
    dropped = lanes[static_cast<std::size_t>(number % models)].cache().drop(number / models);
  });
  if (!dropped) throw Error(ErrorCode::not_found, cat("there is no state ", number));
  Json out = Json::object();
  out.set("id", number).set("deleted", true);
  reply->send({200, "application/json", out.text(false)});
}

void slot_action(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const std::int64_t slot = states::number_in(request.path(), "/slots/");
  const std::string action = request.query("action");
  const JsonValue body = request.body.empty() ? JsonValue(JsonValue::Object()) : parse_body(request.body);
  const Fields fields(body);
  const std::size_t model = service.model_of(fields);
  if (action == "erase") return reply->send(states::erase(service, slot, model));
  if (action != "save" && action != "restore")
    throw Error(ErrorCode::invalid_argument,
                cat("action: must be save, restore or erase, not ", quoted(action)));
  const std::string name = states::checked_name(fields, service.options());
  const states::File file{slot, model, name, cat(service.options().states_folder, "/", name)};
  service.apart([&service, reply, file, saves = action == "save"] {
    try {
      reply->send(saves ? states::save(service, file) : states::restore(service, file));
    } catch (const Error& error) {
      reply->send(problem_response(problem_of(error), Dialect::openai));
    }
  });
}

}  // namespace kvtide::serve
