// pattern.h: what a grammar is put together from, and the automaton that reads it byte by byte.
//
//   Grammar grammar;
//   const int digits = grammar.rule();
//   grammar.define(digits, Pattern::repeat(Pattern::set({{'0', '9'}}), 1, kWithoutEnd));
//
// Ownership: patterns share their parts. Thread rules: plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvtide::grammar {

using CharacterRange = std::pair<char32_t, char32_t>;  // both ends belong to it
inline constexpr int kWithoutEnd = -1;
inline constexpr std::size_t kMostStates = std::size_t{1} << 18;
inline constexpr std::size_t kMostEdges = std::size_t{1} << 21;

class Pattern {
 public:
  Pattern() : Pattern(sequence({})) {}  // the empty text
  static Pattern text(std::string_view bytes);
  // One character of several ranges. Surrogates are none.
  static Pattern set(std::vector<CharacterRange> ranges);
  static Pattern all_but(std::vector<CharacterRange> ranges);
  static Pattern sequence(std::vector<Pattern> parts);
  static Pattern choice(std::vector<Pattern> parts);  // of none: nothing fits
  static Pattern repeat(Pattern part, int least, int most);
  static Pattern maybe(Pattern part) { return repeat(std::move(part), 0, 1); }
  static Pattern rule(int number);

 private:
  friend class Compiler;
  enum class Kind { bytes, sequence, choice, repeat, rule };
  struct Node;
  explicit Pattern(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  static Pattern range(char32_t low, char32_t high);

  std::shared_ptr<const Node> node_;
};

// A pushdown automaton: rules call each other, and a rule that has been read to its end returns.
struct Automaton {
  struct Edge {
    enum class Kind : std::uint8_t { byte, empty, call };
    Kind kind;
    std::uint8_t low = 0, high = 0;  // byte: both ends belong to it
    int rule = 0;                    // call
    int to = 0;
  };
  std::vector<std::vector<Edge>> states;
  std::vector<int> starts;  // by rule
  std::vector<int> ends;
};

class Grammar {
 public:
  int rule();  // a new one; rule 0 is the whole text
  void define(int number, Pattern pattern);
  int rules() const { return static_cast<int>(rules_.size()); }
  // Throws Error(invalid_argument) for a grammar of too many states, and for one that calls itself before anything is read.
  Automaton compile() const;

 private:
  std::vector<Pattern> rules_;
};

}  // namespace kvtide::grammar
