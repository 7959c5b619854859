#include "serve/work/prefix_cache.h"

#include <algorithm>
#include <map>
#include <utility>

#include "serve/work/memory_choice.h"
#include "state/state_object.h"

namespace kvtide::serve {
namespace prefix_cache {

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
    return entry;
  }
  std::erase_if(entries_, [&](const Entry& entry) {
    const std::int64_t length = entry.state.position();
    return !entry.kept && !entry.named && keep_alike(entry.state, state) &&
           common_prefix(entry.state.tokens(), state.tokens()) == length &&
           prefix_cache::can_be_cut(state, length);
  });
  return add(std::move(state), key);
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
  return entries_.emplace_back(Entry{next_id_++, std::move(state), false, false, false, key, ++clock_, 0});
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
