#include "serve/routes/states.h"

#include <string>
#include <utility>

#include "base/text.h"
#include "serve/routes/memory_report.h"
#include "serve/routes/request_fields.h"
#include "serve/routes/state_files.h"
#include "serve/routes/state_numbers.h"
#include "state/state_object.h"

namespace kvtide::serve {
namespace states {

using Entry = PrefixCache::Entry;
constexpr std::int64_t kMost = std::int64_t{1} << 40;

std::int64_t required(const Fields& fields, std::string_view key) {
  return fields.required_whole(key, 0, kMost);
}

PosRange range_in(const Fields& fields) { return {required(fields, "first"), required(fields, "last")}; }

// nullopt: the action is no transition.
std::optional<Transition> transition_in(std::string_view action, const Fields& fields) {
  if (action == "truncate")
    return Truncate{required(fields, "length"), fields.flag("nearest").value_or(false)};
  if (action == "drop") return Drop{range_in(fields), fields.flag("close_gap").value_or(false)};
  if (action == "compact") return Compact{required(fields, "capacity")};
  if (action == "expand") return Expand{required(fields, "capacity")};
  if (action == "attention") return SetAttention{fields.whole("size", 1, kMost), std::nullopt};
  return std::nullopt;
}

Json record_object(const TransitionRecord& r) {
  Json out = Json::object();
  out.set("name", r.name).set("rows_kept", r.rows_kept).set("rows_dropped", r.rows_dropped);
  out.set("capacity_before", r.capacity_before).set("capacity_after", r.capacity_after);
  out.set("bytes_before", r.bytes_before).set("read_again", r.read_again);
  return out;
}

// What was done, or with "plan" what would be.
Json change(Entry& entry, const Transition& transition, bool only_plan) {
  const TransitionPlan plan = entry.state.plan(transition);
  Json out = Json::object();
  if (only_plan) {
    out.set("possible", static_cast<bool>(plan)).set("refusal", plan.refusal());
    out.set("expected", record_object(plan.expected()));
    return out;
  }
  const TransitionRecord record = entry.state.apply(plan);
  entry.named = true;
  const bool was_seen_else =
      std::holds_alternative<Drop>(transition) || std::holds_alternative<SetAttention>(transition);
  entry.by_number = entry.by_number || was_seen_else;
  Json done = record_object(record);
  done.set("bytes_after", record.bytes_after).set("ms", record.milliseconds);
  out.set("done", std::move(done));
  return out;
}

Response answer(Json out) { return {200, "application/json", out.text(false)}; }

Response act(Service& service, std::int64_t number, std::string_view action, const Fields& fields) {
  const std::optional<Transition> transition = transition_in(action, fields);
  const bool only_plan = fields.flag("plan").value_or(false);
  Json out;
  with_state(service, number, [&](std::size_t model, PrefixCache& cache, Entry& entry) {
    out = Json::object();
    if (transition) {
      out = change(entry, *transition, only_plan);
    } else if (action == "fork") {
      Entry& fork = cache.keep_apart(entry.state.fork(), entry.key, entry.by_number);
      fork.drift = entry.drift;
      out.set("state", state_object(service, model, fork));
      return;
    } else if (action == "keep") {
      entry.kept = fields.flag("keep").value_or(true);
    } else if (action == "pin") {
      entry.state.internals().kv.pin(range_in(fields));
    } else {
      throw Error(ErrorCode::not_found,
                  cat("there is no action ", quoted(action), "; there are fork, truncate, drop, compact, ",
                      "expand, attention, pin, keep and save"));
    }
    out.set("state", state_object(service, model, entry));
  });
  return answer(std::move(out));
}

Response save(Service& service, std::int64_t number, const Fields& fields) {
  std::optional<State> state;
  std::size_t model = 0;
  with_state(service, number, [&](std::size_t whose, PrefixCache&, Entry& entry) {
    model = whose;
    state.emplace(entry.state.fork());
  });
  const StateFile file = state_file(fields, service, model);
  save_state(service, file, *state);
  Json out = Json::object();
  out.set("filename", file.name).set("tokens", state->position());
  return answer(std::move(out));
}

}  // namespace states

void list_states(Service& service, const Request&, const std::shared_ptr<Reply>& reply) {
  Json data = Json::array(), out = Json::object();
  service.scheduler().between_steps([&](std::vector<Lane>& lanes) {
    for (std::size_t model = 0; model < lanes.size(); ++model)
      for (const auto& entry : lanes[model].cache().entries()) data.push(state_object(service, model, entry));
  });
  out.set("object", "list").set("data", std::move(data));
  reply->send(states::answer(std::move(out)));
}

void one_state(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  Json out;
  std::vector<TokenId> tokens;
  std::size_t model = 0;
  with_state(service, number_in(request.path(), "/states/"),
             [&](std::size_t whose, PrefixCache&, states::Entry& entry) {
               model = whose;
               out = state_object(service, whose, entry, true);
               tokens = entry.state.tokens();
             });
  out.set("text", service.models()[model].model->tokenizer().decode(tokens, true));
  reply->send(states::answer(std::move(out)));
}

void drop_state(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const std::int64_t number = number_in(request.path(), "/states/");
  with_state(service, number,
             [&](std::size_t, PrefixCache& cache, states::Entry& entry) { cache.drop(entry.id); });
  Json out = Json::object();
  out.set("id", number).set("deleted", true);
  reply->send(states::answer(std::move(out)));
}

void state_action(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const std::string_view path = request.path();
  const std::int64_t number = number_in(path, "/states/");
  const std::size_t slash = path.find('/', std::string_view("/states/").size());
  const std::string action(slash == path.npos ? std::string_view() : path.substr(slash + 1));
  const auto body = std::make_shared<JsonValue>(parse_optional_body(request.body));
  const Fields fields(*body);
  if (action != "save") return reply->send(states::act(service, number, action, fields));
  static_cast<void>(state_file(fields, service, 0));  // refused before anything is queued
  service.apart([&service, reply, body, number] {
    answer_or_refuse(*reply, [&] { return states::save(service, number, Fields(*body)); });
  });
}

void load_state_file(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const JsonValue body = parse_body(request.body);
  const Fields fields(body);
  const std::size_t model = service.model_of(fields);
  const StateFile file = state_file(fields, service, model);
  service.apart([&service, reply, file] {
    answer_or_refuse(*reply, [&] {
      const std::int64_t entry = service.scheduler().keep(file.model, load_state(service, file), "", true);
      Json out;
      with_state(service, state_number(file.model, entry, service.models().size()),
                 [&](std::size_t whose, PrefixCache&, states::Entry& found) {
                   out = state_object(service, whose, found);
                 });
      return states::answer(std::move(out));
    });
  });
}

}  // namespace kvtide::serve
