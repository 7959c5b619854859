#include "serve/routes/slots.h"

#include <algorithm>
#include <utility>

#include "base/stopwatch.h"
#include "base/text.h"
#include "serve/routes/request_fields.h"
#include "serve/routes/state_files.h"
#include "serve/routes/state_numbers.h"

namespace kvtide::serve {
namespace slots {

constexpr std::int64_t kMost = std::int64_t{1} << 40;

// A number, or the session that the header names.
struct Slot {
  std::optional<std::int64_t> number;
  std::string key;

  void add_to(Json& out) const {
    if (number)
      out.set("id_slot", *number);
    else
      out.set("session", key);
  }
};

Slot slot_of(const Request& request) {
  if (request.path() != "/slots/session") {
    const std::int64_t number = number_in(request.path(), "/slots/");
    return {number, slot_key(number)};
  }
  const std::string* session = request.header("x-session-id");
  if (session == nullptr || session->empty())
    throw Error(ErrorCode::invalid_argument, "/slots/session: the header X-Session-Id must name the session");
  return {std::nullopt, *session};
}

// What a request with this key left last, as a fork.
std::optional<State> newest_of(Scheduler& scheduler, std::size_t model, const std::string& key) {
  std::optional<State> out;
  scheduler.between_steps([&](std::vector<Lane>& lanes) {
    PrefixCache& cache = lanes[model].cache();
    if (const PrefixCache::Hit hit = cache.newest(key); hit.entry != nullptr) out.emplace(cache.fork(hit));
  });
  return out;
}

std::int64_t tokens_held(Scheduler& scheduler, std::size_t model, const std::string& key) {
  std::int64_t out = 0;
  scheduler.between_steps([&](std::vector<Lane>& lanes) { out = lanes[model].cache().newest(key).length; });
  return out;
}

Response save(Service& service, const Slot& slot, const StateFile& file, bool durable) {
  const Stopwatch watch;
  std::optional<State> state = newest_of(service.scheduler(), file.model, slot.key);
  if (!state)
    throw Error(ErrorCode::not_found,
                slot.number ? cat("slot ", *slot.number, " holds nothing: no request with id_slot ",
                                  *slot.number, " has left its memory")
                            : cat("the session ", quoted(slot.key),
                                  " holds nothing: none of its requests has left its memory"));
  save_state(service, file, *state, durable);
  Json out = Json::object(), times = Json::object();
  times.set("save_ms", watch.ms());
  slot.add_to(out);
  out.set("filename", file.name).set("n_saved", state->position());
  return {200, "application/json", out.set("timings", std::move(times)).text(false)};
}

// unless_held: nothing is read when the slot holds so many tokens.
Response restore(Service& service, const Slot& slot, const StateFile& file,
                 std::optional<std::int64_t> unless_held) {
  const Stopwatch watch;
  std::int64_t tokens = 0;
  if (!unless_held || tokens_held(service.scheduler(), file.model, slot.key) != *unless_held) {
    State state = load_state(service, file);
    tokens = state.position();
    service.scheduler().keep(file.model, std::move(state), slot.key);
  }
  Json out = Json::object(), times = Json::object();
  times.set("restore_ms", watch.ms());
  slot.add_to(out);
  out.set("filename", file.name).set("n_restored", tokens);
  return {200, "application/json", out.set("timings", std::move(times)).text(false)};
}

Response erase(Service& service, const Slot& slot, std::size_t model) {
  std::int64_t erased = 0;
  service.scheduler().between_steps(
      [&](std::vector<Lane>& lanes) { erased = lanes[model].cache().erase(slot.key); });
  Json out = Json::object();
  slot.add_to(out);
  out.set("n_erased", erased);
  return {200, "application/json", out.text(false)};
}

}  // namespace slots

void list_slots(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const std::size_t model = service.model_named(request.query("model"));
  Json out = Json::array();
  service.scheduler().between_steps([&](std::vector<Lane>& lanes) {
    const Lane& lane = lanes[model];
    for (std::int64_t number = 0; number < service.options().work.parallel; ++number) {
      const std::string key = slot_key(number);
      const bool busy = std::any_of(lane.running().begin(), lane.running().end(),
                                    [&](const Running& one) { return one.spec.key == key; });
      Json slot = Json::object();
      slot.set("id", number).set("n_ctx", lane.context()).set("speculative", false);
      slot.set("is_processing", busy).set("n_tokens", lane.cache().newest(key).length);
      out.push(std::move(slot));
    }
  });
  reply->send({200, "application/json", out.text(false)});
}

void slot_action(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const slots::Slot slot = slots::slot_of(request);
  const std::string action = request.query("action");
  const JsonValue body = parse_optional_body(request.body);
  const Fields fields(body);
  const std::size_t model = service.model_of(fields);
  if (action == "erase") return reply->send(slots::erase(service, slot, model));
  if (action != "save" && action != "restore")
    throw Error(ErrorCode::invalid_argument,
                cat("action: must be save, restore or erase, not ", quoted(action)));
  const StateFile file = state_file(fields, service, model);
  const auto unless_held = fields.whole("unless_held", 1, slots::kMost);
  const bool durable = fields.flag("durable").value_or(true);
  service.apart([&service, reply, file, slot, unless_held, durable, saves = action == "save"] {
    answer_or_refuse(*reply, [&] {
      return saves ? slots::save(service, slot, file, durable)
                   : slots::restore(service, slot, file, unless_held);
    });
  });
}

}  // namespace kvtide::serve
