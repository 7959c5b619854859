// constraint.h: which tokens may come next in a text that follows a grammar.
//
//   Constraint constraint(grammar, trie);
//   Constraint::State at = constraint.start();
//   constraint.allow(at, logits);                  // the others become -infinity
//   at = constraint.behind(at, tokenizer.piece(token));
//
// States are what the automaton may be in, with what it returns to; equal ones have one number, and what was worked out
// for one is kept: inside a text of JSON, for instance, one mask serves every token.
// Work is counted and limited, since others wait for it: a grammar that can be read in very many ways is refused at the token
// that would take too much, at the same one everywhere.
// Ownership: shares the trie. Thread rules: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/grammar/pattern.h"
#include "text/grammar/token_trie.h"

namespace kvtide::grammar {

class Constraint {
 public:
  using State = int;
  static constexpr State kNowhere = -1;  // the text does not fit
  // Units of work for the first token, and how many more each further one brings; a unit takes about 2 ns.
  static constexpr std::int64_t kMostWork = std::int64_t{1} << 25, kWorkPerToken = std::int64_t{1} << 22;

  // Throws as Grammar::compile. All members throw Error(invalid_argument) for a grammar that takes too much work or memory.
  Constraint(const Grammar& grammar, std::shared_ptr<const TokenTrie> trie);

  State start() const { return start_; }
  State behind(State state, std::string_view bytes);
  bool may_end(State state) const { return states_[static_cast<std::size_t>(state)].may_end; }
  // Whether any byte may follow.
  bool may_go_on(State state) const { return states_[static_cast<std::size_t>(state)].may_go_on; }
  // Makes tokens that may not come next impossible. Tokens that end a text may come where the text may end; `more` are
  // treated alike. False: no token may come.
  bool allow(State state, std::span<float> logits, std::span<const TokenId> more = {});

  std::int64_t work() const { return work_; }  // so far, in units

 private:
  // Where a rule goes on when the one that it called has been read: a list, the innermost first. 0: nowhere, the end.
  struct Return {
    int state, below;
  };
  using Place = std::pair<int, int>;  // a state of the automaton, and what it returns to
  static constexpr State kUnknown = -2;
  struct Known {
    std::vector<Place> places;  // sorted; those from which a byte can be read
    bool may_end = false, may_go_on = false;
    std::array<State, 256> next;
    State plain_next = kUnknown;      // behind every plain byte; kNowhere: that depends on the byte
    std::vector<std::uint64_t> mask;  // of the trie's tokens in their order; empty: not worked out
  };
  State known(std::vector<Place> places);
  State step(State state, std::uint8_t byte);
  State plain_step(State state);
  // Whether so many plain bytes of any kind can follow.
  bool takes_plain(State state, int bytes);
  void spend(std::int64_t work);
  int pushed(int state, int below);
  void work_out_mask(State state);

  Automaton automaton_;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<Return> returns_;
  std::unordered_map<std::uint64_t, int> numbers_;  // of returns_
  std::vector<Known> states_;
  std::map<std::pair<std::vector<Place>, bool>, State> by_places_;
  std::list<State> masks_;         // that are worked out, the newest last
  std::size_t places_in_all_ = 0;  // of states_
  std::int64_t work_ = 0, work_left_ = kMostWork;
  State start_ = kNowhere;
};

}  // namespace kvtide::grammar
