#include "cli/output/memory_event.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "cli/output/terminal.h"

namespace kvtide {

MemoryEvent event_of(const TransitionRecord& record) {
  MemoryEvent event{record.name, record.position, {}, record.milliseconds};
  auto& numbers = event.numbers;
  numbers = {{"kept", record.rows_kept}, {"dropped", record.rows_dropped}};
  if (record.capacity_before != record.capacity_after) {
    numbers.emplace_back("capacity_before", record.capacity_before);
    numbers.emplace_back("capacity_after", record.capacity_after);
  }
  numbers.emplace_back("bytes_before", record.bytes_before);
  numbers.emplace_back("bytes_after", record.bytes_after);
  return event;
}

MemoryEvent event_of(const AttentionChange& change) {
  return {"adapt",
          change.position,
          {{"size_before", change.before},
           {"size", change.size},
           {"far_share_ppm", static_cast<std::int64_t>(std::llround(change.far_share * 1e6))}},
          0.0};
}

std::string event_text(const MemoryEvent& event) {
  std::string text = cat(event.kind, " at ", count_text(event.position)), separator = ": ";
  for (const auto& [name, value] : event.numbers) {
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    const bool bytes = words.find("bytes") != words.npos;
    text += cat(separator, words, " ", bytes ? bytes_text(value) : count_text(value));
    separator = ", ";
  }
  if (event.milliseconds <= 0.0) return text;  // a sum over the run
  const double us = event.milliseconds * 1e3;
  return text +
         cat(separator, us < 100.0 ? number_text(us, 1) + " us" : number_text(event.milliseconds, 1) + " ms");
}

Json event_json(const MemoryEvent& event) {
  Json json = Json::object();
  json.set("kind", event.kind).set("position", event.position);
  for (const auto& [name, value] : event.numbers) json.set(name, value);
  json.set("ms", event.milliseconds);
  return json;
}

}  // namespace kvtide
