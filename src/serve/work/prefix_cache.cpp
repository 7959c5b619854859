#include "serve/work/prefix_cache.h"

#include <algorithm>
#include <map>
#include <utility>

#include "serve/work/memory_choice.h"
#include "state/state_object.h"

namespace kvtide::serve {
namespace prefix_cache {

constexpr std::size_t kMostLeavers = 64;  // of an entry; a beginning that all share has many

void add_leaver(PrefixCache::Entry& entry, PrefixCache::Leaver leaver) {
  std::erase_if(entry.left_by, [&](const PrefixCache::Leaver& other) { return other.key == leaver.key; });
  if (entry.left_by.size() >= kMostLeavers) entry.left_by.erase(entry.left_by.begin());
  entry.left_by.push_back(std::move(leaver));
}

bool can_be_cut(const State& state, std::int64_t length) {
  return length == state.position() || static_cast<bool>(state.plan(Truncate{length}));
}

// How much of `length` tokens remains when a state goes back there, or to the checkpoint before.
std::int64_t left_of(const State& state, std::int64_t length) {
  return state.internals().kv.nearest_to(length);
}

}  // namespace prefix_cache

std::int64_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const std::size_t most = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first - a.begin();
}

PrefixCache::Hit PrefixCache::find(std::span<const TokenId> prompt, const State& like) const {
  Hit best;
  if (prompt.empty()) return best;
  const auto usable = prompt.first(prompt.size() - 1);
  for (const Entry& entry : entries_) {
    if (entry.by_number || !keep_alike(entry.state, like)) continue;
    const std::int64_t same = common_prefix(usable, entry.state.tokens());
    if (same <= best.length) continue;
    const std::int64_t left = prefix_cache::left_of(entry.state, same);
    if (left > best.length) best = {&entry, left};
  }
  return best;
}

State PrefixCache::fork(const Hit& hit) {
  Entry& entry = *at(hit.entry->id);
  entry.used = ++clock_;
  ++entry.hits;
  State out = entry.state.fork();
  if (hit.length < out.position()) out.apply(Truncate{hit.length});
  return out;
}

PrefixCache::Entry& PrefixCache::keep(State state, const std::string& key) {
  for (Entry& entry : entries_) {
    if (entry.by_number || !keep_alike(entry.state, state)) continue;
    const std::int64_t same = common_prefix(entry.state.tokens(), state.tokens());
    if (same != state.position() || !prefix_cache::can_be_cut(entry.state, same)) continue;
    entry.used = ++clock_;
    prefix_cache::add_leaver(entry, {key, same, clock_});
    return entry;
  }
  std::vector<Leaver> inherited;  // of those that the new one stands for
  std::erase_if(entries_, [&](const Entry& entry) {
    const std::int64_t length = entry.state.position();
    const bool goes = !entry.kept && !entry.named && keep_alike(entry.state, state) &&
                      common_prefix(entry.state.tokens(), state.tokens()) == length &&
                      prefix_cache::can_be_cut(state, length);
    if (goes)
      for (const Leaver& leaver : entry.left_by)
        if (prefix_cache::can_be_cut(state, leaver.length)) inherited.push_back(leaver);
    return goes;
  });
  Entry& added = add(std::move(state), key);
  const Leaver own = std::exchange(added.left_by, {}).front();
  for (Leaver& leaver : inherited) prefix_cache::add_leaver(added, std::move(leaver));
  prefix_cache::add_leaver(added, own);
  return added;
}

PrefixCache::Hit PrefixCache::newest(const std::string& key) const {
  Hit best;
  std::uint64_t used = 0;
  for (const Entry& entry : entries_)
    for (const Leaver& leaver : entry.left_by) {
      if (leaver.key != key || leaver.used <= used) continue;
      if (!prefix_cache::can_be_cut(entry.state, leaver.length)) continue;  // it was changed since
      used = leaver.used;
      best = {&entry, leaver.length};
    }
  return best;
}

std::int64_t PrefixCache::erase(const std::string& key) {
  std::int64_t tokens = 0;
  std::erase_if(entries_, [&](Entry& entry) {
    const auto left = std::erase_if(entry.left_by, [&](const Leaver& leaver) { return leaver.key == key; });
    if (left == 0 || !entry.left_by.empty()) return false;
    tokens += entry.state.position();
    return true;
  });
  return tokens;
}

PrefixCache::Entry& PrefixCache::keep_apart(State state, const std::string& key, bool by_number) {
  Entry& entry = add(std::move(state), key);
  entry.by_number = by_number;
  entry.named = true;
  return entry;
}

PrefixCache::Entry& PrefixCache::add(State state, const std::string& key) {
  // Logits are as long as the vocabulary, and the last token is read again anyway.
  std::vector<float>().swap(state.internals().extras.logits);
  const std::int64_t length = state.position();
  Entry& out =
      entries_.emplace_back(Entry{next_id_++, std::move(state), false, false, false, key, ++clock_, 0});
  out.left_by.push_back({key, length, clock_});
  return out;
}

bool PrefixCache::evict() {
  std::map<std::string, std::size_t> counts;
  for (const Entry& entry : entries_) ++counts[entry.key];
  const auto goes_before = [&](const Entry& a, const Entry& b) {
    if (a.kept != b.kept) return b.kept;
    const std::size_t one = counts[a.key], other = counts[b.key];
    return one != other ? one > other : a.used < b.used;
  };
  const auto first = std::min_element(entries_.begin(), entries_.end(), goes_before);
  if (first == entries_.end() || first->kept) return false;
  entries_.erase(first);
  return true;
}

bool PrefixCache::drop(std::int64_t id) {
  return std::erase_if(entries_, [&](const Entry& entry) { return entry.id == id; }) > 0;
}

PrefixCache::Entry* PrefixCache::at(std::int64_t id) {
  for (Entry& entry : entries_)
    if (entry.id == id) return &entry;
  return nullptr;
}

void PrefixCache::add_to(StateBytes& bytes) const {
  for (const Entry& entry : entries_) bytes.add(entry.state);
}

}  // namespace kvtide::serve
