#include "text/grammar/constraint.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <set>

#include "base/refuse.h"
#include "base/text.h"

namespace kvtide::grammar {
namespace {

constexpr std::size_t kMostMasks = 256;                   // kept at once
constexpr std::size_t kMostPlaces = 1 << 12;              // of one state
constexpr std::size_t kMostKnown = std::size_t{1} << 15;  // states of one answer
constexpr std::size_t kMostPlacesInAll = std::size_t{1} << 20;
constexpr std::size_t kMostReturns = std::size_t{1} << 18;
// A step that is known already counts 1, and each place or edge that is looked at for a new one 16: they take so much longer.
constexpr std::int64_t kNewWork = 16;

}  // namespace

Constraint::Constraint(const Grammar& grammar, std::shared_ptr<const TokenTrie> trie)
    : automaton_(grammar.compile()), trie_(std::move(trie)), returns_{{0, 0}} {
  start_ = known({{automaton_.starts[0], 0}});
}

void Constraint::spend(std::int64_t work) {
  work_ += work;
  work_left_ -= work;
  if (work_left_ < 0) refuse("the grammar takes too much work for a token: it can be read in too many ways");
}

int Constraint::pushed(int state, int below) {
  const std::uint64_t key =
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(state)) << 32 | static_cast<std::uint32_t>(below);
  const auto [found, is_new] = numbers_.try_emplace(key, static_cast<int>(returns_.size()));
  if (is_new) {
    if (returns_.size() == kMostReturns) refuse("the grammar: its rules lie too deep in each other");
    returns_.push_back({state, below});
  }
  return found->second;
}

// Follows what needs no byte, and gives the set its number.
Constraint::State Constraint::known(std::vector<Place> places) {
  std::set<Place> seen(places.begin(), places.end());
  Known out;
  while (!places.empty()) {
    const auto [at, below] = places.back();
    places.pop_back();
    spend(kNewWork * static_cast<std::int64_t>(1 + automaton_.states[static_cast<std::size_t>(at)].size()));
    const auto add = [&](int state, int returns) {
      if (seen.emplace(state, returns).second) places.emplace_back(state, returns);
    };
    if (std::binary_search(automaton_.ends.begin(), automaton_.ends.end(), at)) {
      if (below == 0)
        out.may_end = true;
      else
        add(returns_[static_cast<std::size_t>(below)].state, returns_[static_cast<std::size_t>(below)].below);
    }
    bool reads = false;
    for (const Automaton::Edge& edge : automaton_.states[static_cast<std::size_t>(at)]) {
      reads = reads || edge.kind == Automaton::Edge::Kind::byte;
      if (edge.kind == Automaton::Edge::Kind::empty) add(edge.to, below);
      if (edge.kind != Automaton::Edge::Kind::call) continue;
      const bool is_last = std::binary_search(automaton_.ends.begin(), automaton_.ends.end(), edge.to);
      add(automaton_.starts[static_cast<std::size_t>(edge.rule)], is_last ? below : pushed(edge.to, below));
    }
    if (reads) out.places.emplace_back(at, below);
    if (seen.size() > kMostPlaces) refuse("the grammar can be read in too many ways at once");
  }
  std::sort(out.places.begin(), out.places.end());
  out.may_go_on = !out.places.empty();
  if (!out.may_go_on && !out.may_end) return kNowhere;
  const auto key = std::pair(out.places, out.may_end);
  if (const auto found = by_places_.find(key); found != by_places_.end()) return found->second;
  if (states_.size() == kMostKnown) refuse("the grammar: the answer has too many states");
  places_in_all_ += out.places.size();
  if (places_in_all_ > kMostPlacesInAll) refuse("the grammar: the answer has too many states");
  out.next.fill(kUnknown);
  states_.push_back(std::move(out));
  return by_places_.emplace(key, static_cast<State>(states_.size()) - 1).first->second;
}

Constraint::State Constraint::step(State state, std::uint8_t byte) {
  const State before = states_[static_cast<std::size_t>(state)].next[byte];
  spend(1);
  if (before != kUnknown) return before;
  std::vector<Place> places;
  for (const auto& [at, below] : states_[static_cast<std::size_t>(state)].places) {
    spend(kNewWork * static_cast<std::int64_t>(1 + automaton_.states[static_cast<std::size_t>(at)].size()));
    for (const Automaton::Edge& edge : automaton_.states[static_cast<std::size_t>(at)])
      if (edge.kind == Automaton::Edge::Kind::byte && edge.low <= byte && byte <= edge.high)
        places.emplace_back(edge.to, below);
  }
  const State next = places.empty() ? kNowhere : known(std::move(places));
  return states_[static_cast<std::size_t>(state)].next[byte] = next;
}

Constraint::State Constraint::plain_step(State state) {
  const State before = states_[static_cast<std::size_t>(state)].plain_next;
  if (before != kUnknown) return before;
  State all = kUnknown;
  for (unsigned byte = 0; byte < 256 && all != kNowhere; ++byte) {
    if (!TokenTrie::is_plain(static_cast<std::uint8_t>(byte))) continue;
    const State next = step(state, static_cast<std::uint8_t>(byte));
    all = all == kUnknown || all == next ? next : kNowhere;
  }
  return states_[static_cast<std::size_t>(state)].plain_next = all;
}

bool Constraint::takes_plain(State state, int bytes) {
  for (; bytes > 0; --bytes) {
    spend(1);
    const State next = plain_step(state);
    if (next == kNowhere) return false;
    if (next == state) return true;
    state = next;
  }
  return true;
}

Constraint::State Constraint::behind(State state, std::string_view bytes) {
  for (const char c : bytes) {
    if (state == kNowhere) break;
    state = step(state, static_cast<std::uint8_t>(c));
  }
  return state;
}

void Constraint::work_out_mask(State state) {
  std::vector<std::uint64_t> mask((trie_->tokens().size() + 63) / 64 + 1);
  const auto allow = [&](std::uint32_t first, std::uint32_t last) {
    for (; first < last && first % 64 != 0; ++first) mask[first / 64] |= std::uint64_t{1} << (first % 64);
    for (; first + 64 <= last; first += 64) mask[first / 64] = ~std::uint64_t{0};
    for (; first < last; ++first) mask[first / 64] |= std::uint64_t{1} << (first % 64);
  };
  const std::vector<TokenTrie::Node>& nodes = trie_->nodes();
  std::vector<State> path = {state};  // by depth
  for (std::uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const State next = step(path[node.depth - 1u], node.byte);
    if (next == kNowhere) {
      i = node.next;
      continue;
    }
    if (node.is_plain && takes_plain(next, node.height)) {  // nothing below it needs to be looked at
      allow(node.first, node.end);
      i = node.next;
      continue;
    }
    if (path.size() <= node.depth) path.resize(node.depth + 1u);
    path[node.depth] = next;
    allow(node.first, node.last);
    ++i;
  }
  if (masks_.size() == kMostMasks) {
    states_[static_cast<std::size_t>(masks_.front())].mask = {};
    masks_.pop_front();
  }
  states_[static_cast<std::size_t>(state)].mask = std::move(mask);
  masks_.push_back(state);
}

bool Constraint::allow(State state, std::span<float> logits, std::span<const TokenId> more) {
  work_left_ = std::min(kMostWork, work_left_ + kWorkPerToken);
  if (states_[static_cast<std::size_t>(state)].mask.empty()) work_out_mask(state);
  const Known& here = states_[static_cast<std::size_t>(state)];
  constexpr float kImpossible = -std::numeric_limits<float>::infinity();
  std::vector<std::pair<TokenId, float>> ends;
  const auto keep = [&](TokenId id) {
    if (here.may_end && id >= 0 && static_cast<std::size_t>(id) < logits.size())
      ends.emplace_back(id, logits[static_cast<std::size_t>(id)]);
  };
  for (const TokenId id : trie_->ends()) keep(id);
  for (const TokenId id : more) keep(id);
  bool any = !ends.empty();
  std::vector<std::pair<TokenId, float>> kept;
  const std::vector<TokenId>& tokens = trie_->tokens();
  for (std::size_t word = 0; word < here.mask.size(); ++word)
    for (std::uint64_t bits = here.mask[word]; bits != 0; bits &= bits - 1) {
      const TokenId id = tokens[word * 64 + static_cast<std::size_t>(std::countr_zero(bits))];
      if (static_cast<std::size_t>(id) < logits.size())
        kept.emplace_back(id, logits[static_cast<std::size_t>(id)]);
    }
  any = any || !kept.empty();
  std::fill(logits.begin(), logits.end(), kImpossible);
  for (const auto& [id, logit] : kept) logits[static_cast<std::size_t>(id)] = logit;
  for (const auto& [id, logit] : ends) logits[static_cast<std::size_t>(id)] = logit;
  return any;
}

}  // namespace kvtide::grammar
