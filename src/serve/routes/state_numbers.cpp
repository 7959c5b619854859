#include "serve/routes/state_numbers.h"

#include <charconv>
#include <utility>

#include "base/text.h"

namespace kvtide::serve {

std::int64_t state_number(std::size_t model, std::int64_t entry, std::size_t models) {
  return entry * static_cast<std::int64_t>(models) + static_cast<std::int64_t>(model);
}

std::int64_t number_in(std::string_view path, std::string_view front) {
  const std::string_view behind = path.substr(front.size()), text = behind.substr(0, behind.find('/'));
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0)
    throw Error(ErrorCode::not_found, cat(quoted(path), ": a number belongs behind ", front));
  return number;
}

void with_state(Service& service, std::int64_t number, const EntryAction& action) {
  const auto models = static_cast<std::int64_t>(service.models().size());
  const auto model = static_cast<std::size_t>(number % models);
  service.scheduler().between_steps([&](std::vector<Lane>& lanes) {
    PrefixCache& cache = lanes[model].cache();
    PrefixCache::Entry* entry = cache.at(number / models);
    if (entry == nullptr) throw Error(ErrorCode::not_found, cat("there is no state ", number));
    action(model, cache, *entry);
  });
}

std::shared_ptr<StartingPoint> starting_point(Service& service, std::size_t model, std::int64_t number) {
  std::shared_ptr<StartingPoint> out;
  with_state(service, number, [&](std::size_t whose, PrefixCache& cache, PrefixCache::Entry& entry) {
    if (whose != model)
      throw Error(ErrorCode::invalid_argument, cat("kv.state: state ", number, " is one of the model ",
                                                   quoted(service.models()[whose].name)));
    cache.touch(entry);
    out = std::make_shared<StartingPoint>(StartingPoint{entry.state.fork(), entry.by_number});
  });
  return out;
}

}  // namespace kvtide::serve
