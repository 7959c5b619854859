#include "serve/routes/slots.h"

#include <utility>

#include "base/stopwatch.h"
#include "base/text.h"
#include "serve/routes/request_fields.h"
#include "serve/routes/state_files.h"
#include "serve/routes/state_numbers.h"

namespace kvtide::serve {
namespace slots {

using Entry = PrefixCache::Entry;

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

Response save(Service& service, std::int64_t slot, const StateFile& file) {
  const Stopwatch watch;
  std::optional<State> state = newest_of(service.scheduler(), file.model, slot_key(slot));
  if (!state)
    throw Error(ErrorCode::not_found,
                cat("slot ", slot, " holds nothing: no request with id_slot ", slot, " has left its memory"));
  save_state(service, file, *state);
  Json out = Json::object(), times = Json::object();
  times.set("save_ms", watch.ms());
  out.set("id_slot", slot).set("filename", file.name).set("n_saved", state->position());
  return {200, "application/json", out.set("timings", std::move(times)).text(false)};
}

Response restore(Service& service, std::int64_t slot, const StateFile& file) {
  const Stopwatch watch;
  State state = load_state(service, file);
  const std::int64_t tokens = state.position();
  service.scheduler().keep(file.model, std::move(state), slot_key(slot));
  Json out = Json::object(), times = Json::object();
  times.set("restore_ms", watch.ms());
  out.set("id_slot", slot).set("filename", file.name).set("n_restored", tokens);
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

}  // namespace slots

void slot_action(Service& service, const Request& request, const std::shared_ptr<Reply>& reply) {
  const std::int64_t slot = number_in(request.path(), "/slots/");
  const std::string action = request.query("action");
  const JsonValue body = parse_optional_body(request.body);
  const Fields fields(body);
  const std::size_t model = service.model_of(fields);
  if (action == "erase") return reply->send(slots::erase(service, slot, model));
  if (action != "save" && action != "restore")
    throw Error(ErrorCode::invalid_argument,
                cat("action: must be save, restore or erase, not ", quoted(action)));
  const StateFile file = state_file(fields, service, model);
  service.apart([&service, reply, file, slot, saves = action == "save"] {
    answer_or_refuse(*reply, [&] {
      return saves ? slots::save(service, slot, file) : slots::restore(service, slot, file);
    });
  });
}

}  // namespace kvtide::serve
