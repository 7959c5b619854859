#include "text/grammar/pattern.h"

#include <algorithm>
#include <array>

#include "base/refuse.h"
#include "base/text.h"
#include "text/utf8.h"

namespace kvtide::grammar {

struct Pattern::Node {
  Kind kind;
  std::vector<std::pair<std::uint8_t, std::uint8_t>> bytes = {};  // one after the other
  std::vector<Pattern> parts = {};
  int least = 0, most = 0;
  int rule = 0;
};

namespace {

constexpr char32_t kLastCharacter = 0x10ffff;

std::string bytes_of(char32_t c) {
  std::string out;
  append_utf8(out, c);
  return out;
}

}  // namespace

Pattern Pattern::text(std::string_view bytes) {
  Node node{Kind::bytes};
  for (const char c : bytes)
    node.bytes.emplace_back(static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(c));
  return Pattern(std::make_shared<const Node>(std::move(node)));
}

Pattern Pattern::sequence(std::vector<Pattern> parts) {
  Node node{Kind::sequence};
  node.parts = std::move(parts);
  return Pattern(std::make_shared<const Node>(std::move(node)));
}

Pattern Pattern::choice(std::vector<Pattern> parts) {
  Node node{Kind::choice};
  node.parts = std::move(parts);
  return Pattern(std::make_shared<const Node>(std::move(node)));
}

Pattern Pattern::repeat(Pattern part, int least, int most) {
  Node node{Kind::repeat};
  node.parts.push_back(std::move(part));
  node.least = least;
  node.most = most;
  return Pattern(std::make_shared<const Node>(std::move(node)));
}

Pattern Pattern::rule(int number) {
  Node node{Kind::rule};
  node.rule = number;
  return Pattern(std::make_shared<const Node>(std::move(node)));
}

// Characters whose UTF-8 has one length: they differ in the last bytes, which run through all values between full blocks.
Pattern Pattern::range(char32_t low, char32_t high) {
  const std::string first = bytes_of(low), last = bytes_of(high);
  for (std::size_t i = 1; i < first.size(); ++i) {
    const unsigned shift = static_cast<unsigned>(6 * (first.size() - i));
    const char32_t block = (char32_t{1} << shift) - 1;
    if ((low & ~block) == (high & ~block)) continue;
    if ((low & block) != 0) return choice({range(low, low | block), range((low | block) + 1, high)});
    if ((high & block) != block) return choice({range(low, (high & ~block) - 1), range(high & ~block, high)});
  }
  Node node{Kind::bytes};
  for (std::size_t i = 0; i < first.size(); ++i)
    node.bytes.emplace_back(static_cast<std::uint8_t>(first[i]), static_cast<std::uint8_t>(last[i]));
  return Pattern(std::make_shared<const Node>(std::move(node)));
}

Pattern Pattern::set(std::vector<CharacterRange> ranges) {
  // No range crosses one of these: the lengths of UTF-8, and the surrogates.
  constexpr std::array<CharacterRange, 5> kAlike = {
      {{0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, kLastCharacter}}};
  std::vector<Pattern> parts;
  for (const auto& [low, high] : ranges)
    for (const auto& [first, last] : kAlike)
      if (std::max(low, first) <= std::min(high, last))
        parts.push_back(range(std::max(low, first), std::min(high, last)));
  return choice(std::move(parts));
}

Pattern Pattern::all_but(std::vector<CharacterRange> ranges) {
  std::sort(ranges.begin(), ranges.end());
  std::vector<CharacterRange> rest;
  char32_t next = 0;
  for (const auto& [low, high] : ranges) {
    if (low > next) rest.emplace_back(next, low - 1);
    next = std::max<char32_t>(next, high + 1);
  }
  if (next <= kLastCharacter) rest.emplace_back(next, kLastCharacter);
  return set(std::move(rest));
}

// Writes patterns as states between two given ones.
class Compiler {
 public:
  explicit Compiler(Automaton& out) : out_(out) {}

  int state() {
    if (out_.states.size() == kMostStates)
      refuse(cat("the grammar is too large: it has more than ", kMostStates, " states"));
    out_.states.emplace_back();
    return static_cast<int>(out_.states.size()) - 1;
  }

  void write(const Pattern& pattern, int from, int to) {
    const Pattern::Node& node = *pattern.node_;
    switch (node.kind) {
      case Pattern::Kind::bytes:
        return write_bytes(node, from, to);
      case Pattern::Kind::sequence:
        return write_sequence(node.parts, from, to);
      case Pattern::Kind::choice:
        for (const Pattern& part : node.parts) write(part, from, to);
        return;
      case Pattern::Kind::repeat:
        return write_repeat(node, from, to);
      case Pattern::Kind::rule:
        add(from, {Automaton::Edge::Kind::call, 0, 0, node.rule, to});
        return;
    }
  }

 private:
  void add(int from, const Automaton::Edge& edge) {
    if (++edges_ > kMostEdges)
      refuse(cat("the grammar is too large: it has more than ", kMostEdges, " ways from state to state"));
    out_.states[static_cast<std::size_t>(from)].push_back(edge);
  }
  void link(int from, int to) {
    if (from != to) add(from, {Automaton::Edge::Kind::empty, 0, 0, 0, to});
  }
  void write_bytes(const Pattern::Node& node, int from, int to) {
    if (node.bytes.empty()) return link(from, to);
    for (std::size_t i = 0; i < node.bytes.size(); ++i) {
      const int next = i + 1 == node.bytes.size() ? to : state();
      add(from, {Automaton::Edge::Kind::byte, node.bytes[i].first, node.bytes[i].second, 0, next});
      from = next;
    }
  }
  void write_sequence(const std::vector<Pattern>& parts, int from, int to) {
    if (parts.empty()) return link(from, to);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const int next = i + 1 == parts.size() ? to : state();
      write(parts[i], from, next);
      from = next;
    }
  }
  void write_repeat(const Pattern::Node& node, int from, int to) {
    for (int i = 0; i < node.least; ++i) {
      const int next = state();
      write(node.parts[0], from, next);
      from = next;
    }
    if (node.most == kWithoutEnd) {
      const int loop = state();
      link(from, loop);
      write(node.parts[0], loop, loop);
      return link(loop, to);
    }
    for (int i = node.least; i < node.most; ++i) {
      link(from, to);
      const int next = state();
      write(node.parts[0], from, next);
      from = next;
    }
    link(from, to);
  }

  Automaton& out_;
  std::size_t edges_ = 0;
};

namespace {

// Which rules fit the empty text, and whether one calls itself before anything is read. A state belongs to one rule, so each
// is looked at once.
class LeftCalls {
 public:
  explicit LeftCalls(const Automaton& automaton)
      : automaton_(automaton),
        seen_(automaton.states.size(), false),
        nullable_(automaton.starts.size(), false),
        waiting_(automaton.starts.size()),
        calls_(automaton.starts.size()),
        progress_(automaton.starts.size(), Progress::none) {
    for (std::size_t rule = 0; rule < automaton.starts.size(); ++rule) reach(automaton.starts[rule], rule);
    while (!todo_.empty()) {
      const auto [at, rule] = todo_.back();
      todo_.pop_back();
      look_at(at, rule);
    }
  }

  void check(std::size_t rule) {
    // Rules that are being looked at, in the order of the calls; without recursion of ours.
    std::vector<std::size_t> path;
    const auto enter = [&](std::size_t next) {
      progress_[next] = Progress::begun;
      path.push_back(next);
    };
    if (progress_[rule] == Progress::none) enter(rule);
    while (!path.empty()) {
      std::vector<std::size_t>& calls = calls_[path.back()];
      if (calls.empty()) {
        progress_[path.back()] = Progress::done;
        path.pop_back();
        continue;
      }
      const std::size_t next = calls.back();
      calls.pop_back();
      if (progress_[next] == Progress::begun)
        refuse("the grammar has a rule that calls itself before anything is read");
      if (progress_[next] == Progress::none) enter(next);
    }
  }

 private:
  enum class Progress : char { none, begun, done };

  void reach(int at, std::size_t rule) {
    if (seen_[static_cast<std::size_t>(at)]) return;
    seen_[static_cast<std::size_t>(at)] = true;
    todo_.emplace_back(at, rule);
  }
  void look_at(int at, std::size_t rule) {
    if (at == automaton_.ends[rule] && !nullable_[rule]) {
      nullable_[rule] = true;
      for (const auto& [to, caller] : waiting_[rule]) reach(to, caller);
    }
    for (const Automaton::Edge& edge : automaton_.states[static_cast<std::size_t>(at)]) {
      if (edge.kind == Automaton::Edge::Kind::empty) reach(edge.to, rule);
      if (edge.kind != Automaton::Edge::Kind::call) continue;
      const auto called = static_cast<std::size_t>(edge.rule);
      calls_[rule].push_back(called);
      if (nullable_[called])
        reach(edge.to, rule);
      else
        waiting_[called].emplace_back(edge.to, rule);
    }
  }

  const Automaton& automaton_;
  std::vector<bool> seen_;                                         // states
  std::vector<bool> nullable_;                                     // rules, as the rest
  std::vector<std::vector<std::pair<int, std::size_t>>> waiting_;  // where callers go on once it is nullable
  std::vector<std::vector<std::size_t>> calls_;                    // before anything is read
  std::vector<Progress> progress_;
  std::vector<std::pair<int, std::size_t>> todo_;
};

}  // namespace

int Grammar::rule() {
  rules_.push_back(Pattern::choice({}));
  return rules() - 1;
}

void Grammar::define(int number, Pattern pattern) {
  rules_[static_cast<std::size_t>(number)] = std::move(pattern);
}

Automaton Grammar::compile() const {
  Automaton out;
  Compiler compiler(out);
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    out.starts.push_back(compiler.state());
    out.ends.push_back(compiler.state());
  }
  for (std::size_t i = 0; i < rules_.size(); ++i) compiler.write(rules_[i], out.starts[i], out.ends[i]);
  LeftCalls calls(out);
  for (std::size_t i = 0; i < rules_.size(); ++i) calls.check(i);
  return out;
}

}  // namespace kvtide::grammar
