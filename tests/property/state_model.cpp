#include "tests/property/state_model.h"

namespace kvtide::testing {
namespace {

Verdict yes_if(bool accepted) { return accepted ? Verdict::accepts : Verdict::refuses; }

Verdict on_truncate(const StateModel& m, Pos length) {
  if (length < 0 || length > m.position) return Verdict::refuses;
  if (length == 0 || length == m.position) return Verdict::accepts;
  const bool before_edits = length <= m.untouched();
  if (!before_edits && length < m.newest_run()) {
    // In the hole that a dropped ending left: both are sound.
    return m.newest_run() == m.position ? Verdict::either : Verdict::refuses;
  }
  for (std::size_t i = 0; i < m.spec.layers.size(); ++i) {
    if (!m.window(i)) continue;
    // Text that left a window for good cannot come back; up to `slack` positions have not left it yet.
    if (length < m.edited && m.forgotten[i] > m.sinks(i)) return Verdict::refuses;
    if (length < m.farthest - m.spec.slack) return Verdict::either;
  }
  StateModel after = m;
  after.apply(Truncate{length});
  return yes_if(after.rows() <= m.spec.capacity);
}

Verdict on_drop(const StateModel& m, const Drop& drop) {
  const auto [first, last] = drop.range;
  if (first < 0 || first >= last || last > m.position) return Verdict::refuses;
  if (m.spec.rolling && first < m.spec.rolling->sinks) return Verdict::refuses;
  if (drop.close_gap && (!m.spec.rotary || last == m.position)) return Verdict::refuses;
  return Verdict::accepts;
}

void take_out(StateModel& m, const Drop& drop) {
  const auto inside = [&](const StateModel::Place& place) {
    return place.position >= drop.range.first && place.position < drop.range.last;
  };
  if (!drop.close_gap) {
    for (auto& place : m.places)
      if (inside(place)) place.held = false;
    return;
  }
  // What has left a window is gone, and does not come back when older text moves nearer.
  for (std::size_t layer = 0; layer < m.spec.layers.size(); ++layer) {
    const auto window = m.window(layer);
    if (!window) continue;
    for (std::size_t i = 0; i < m.places.size(); ++i)
      if (m.places[i].held && m.seen(i) <= m.position - *window)
        m.forgotten[layer] = std::max(m.forgotten[layer], m.places[i].position + 1);
  }
  m.edited = m.position;
  // The gap between the held text on both sides closes; holes at the edges, left by earlier drops, stay.
  std::size_t from = m.places.size(), to = 0;
  for (std::size_t i = 0; i < m.places.size(); ++i)
    if (inside(m.places[i]) && m.places[i].held) {
      from = std::min(from, i);
      to = i + 1;
    }
  if (from < to)
    m.places.erase(m.places.begin() + static_cast<std::ptrdiff_t>(from),
                   m.places.begin() + static_cast<std::ptrdiff_t>(to));
}

void take_back(StateModel& m, Pos length) {
  if (length <= m.untouched()) {
    // As if nothing had ever been edited.
    m.places.resize(static_cast<std::size_t>(length));
    if (length < m.position) {
      m.edited = 0;
      std::fill(m.forgotten.begin(), m.forgotten.end(), 0);
    }
  } else {
    m.places.resize(
        m.places.size() - std::min(m.places.size(), static_cast<std::size_t>(m.position - length)),
        StateModel::Place{0, 0});
  }
  if (length == 0) m.farthest = 0;
  m.position = length;
}

}  // namespace

Verdict StateModel::verdict(const Transition& transition) const {
  if (const auto* t = std::get_if<Expand>(&transition))
    return yes_if(t->capacity >= spec.capacity && t->capacity <= (std::int64_t{1} << 31));
  if (const auto* t = std::get_if<Compact>(&transition))
    return yes_if(t->capacity >= 1 && t->capacity <= spec.capacity && rows() <= t->capacity);
  if (const auto* t = std::get_if<Truncate>(&transition)) return on_truncate(*this, t->length);
  if (const auto* t = std::get_if<Drop>(&transition)) return on_drop(*this, *t);
  const auto size = std::get<SetAttention>(transition).size;
  return yes_if(!size || *size >= 1);
}

void StateModel::apply(const Transition& transition) {
  if (const auto* t = std::get_if<Expand>(&transition)) spec.capacity = t->capacity;
  if (const auto* t = std::get_if<Compact>(&transition)) spec.capacity = t->capacity;
  if (const auto* t = std::get_if<Truncate>(&transition)) take_back(*this, t->length);
  if (const auto* t = std::get_if<Drop>(&transition)) take_out(*this, *t);
  if (const auto* t = std::get_if<SetAttention>(&transition)) attention = t->size;
}

}  // namespace kvtide::testing
