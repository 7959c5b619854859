#include "serve/work/prefix_cache.h"

#include <algorithm>
#include <map>
#include <utility>

#include "state/state_object.h"

namespace kvtide::serve {
namespace prefix_cache {

bool can_be_cut(const State& state, std::int64_t length) {
  return length == state.position() || static_cast<bool>(state.plan(Truncate{length}));
}

}  // namespace prefix_cache

std::int64_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const std::size_t most = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first - a.begin();
}

PrefixCache::Hit PrefixCache::find(std::span<const TokenId> prompt) const {
  Hit best;
  if (prompt.empty()) return best;
  const auto usable = prompt.first(prompt.size() - 1);
  for (const Entry& entry : entries_) {
    const std::int64_t same = common_prefix(usable, entry.state.tokens());
    if (same > best.length && prefix_cache::can_be_cut(entry.state, same)) best = {&entry, same};
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
  // Logits are as long as the vocabulary, and the last token is read again anyway.
  std::vector<float>().swap(state.internals().extras.logits);
  for (Entry& entry : entries_) {
    const std::int64_t same = common_prefix(entry.state.tokens(), state.tokens());
    if (same != state.position() || !prefix_cache::can_be_cut(entry.state, same)) continue;
    entry.used = ++clock_;
    return entry;
  }
  std::erase_if(entries_, [&](const Entry& entry) {
    const std::int64_t length = entry.state.position();
    return common_prefix(entry.state.tokens(), state.tokens()) == length &&
           prefix_cache::can_be_cut(state, length);
  });
  return entries_.emplace_back(Entry{next_id_++, std::move(state), key, ++clock_, 0});
}

bool PrefixCache::evict() {
  if (entries_.empty()) return false;
  std::map<std::string, std::size_t> counts;
  for (const Entry& entry : entries_) ++counts[entry.key];
  const auto goes_before = [&](const Entry& a, const Entry& b) {
    const std::size_t one = counts[a.key], other = counts[b.key];
    return one != other ? one > other : a.used < b.used;
  };
  entries_.erase(std::min_element(entries_.begin(), entries_.end(), goes_before));
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
