// runs.h: the text read by a model under test, cut into calls, with everything that came out put together.
//
// Ownership: plain values.
// Thread rules: one caller at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvtide/validate.h"

namespace kvtide {

struct Schedule {
  std::string name;                 // "calls of 4"
  std::vector<std::int64_t> calls;  // tokens of each
  std::int64_t tokens() const;
  // The first position of every call, and the end.
  std::vector<Pos> starts() const;
  std::int64_t longest() const;
};

// Calls of `chunk` tokens over a text of `tokens`; it ends with a shorter one, for which a token may be left.
Schedule calls_of(std::int64_t chunk, std::int64_t tokens);
// Calls of several lengths in turn, long ones behind short ones and the other way round; up to 100 tokens in texts
// that have room for that.
Schedule mixed_calls(std::int64_t largest_chunk, std::int64_t tokens);
// The first half in as few calls as the model can take, the rest one by one.
Schedule prompt_and_steps(std::int64_t largest_chunk, std::int64_t tokens);

struct Run {
  Schedule schedule;
  std::int64_t tokens = 0;     // that were read
  std::vector<float> hidden;   // [layers + 1][tokens][width]
  std::vector<float> logits;   // [known.size()][vocab]
  std::vector<Pos> known;      // positions whose logits came out
  std::vector<HeldRows> rows;  // per layer, after the last call
  std::string refusal;         // what the model said when it would not read on
  bool finite = true;

  std::span<const float> stream(std::int64_t layer, Pos token, std::int64_t width) const {
    return std::span(hidden).subspan(static_cast<std::size_t>((layer * tokens + token) * width),
                                     static_cast<std::size_t>(width));
  }
};

struct RunOptions {
  const Golden* feed = nullptr;  // isolate the layers: feed them with this
  std::int64_t capacity = 0;     // of the state; 0: what the text needs and some room
  bool want_rows = true, want_logits = true;
};

// From a new state, or on from a given one at position `from`. An Error that a call throws ends the run.
Run run(TestedModel& model, std::span<const TokenId> tokens, const Schedule& schedule,
        const RunOptions& options);
Run run_on(TestedModel& model, TestedState& state, std::span<const TokenId> tokens, const Schedule& schedule,
           const RunOptions& options, Pos from);

// Whether two runs of the same text have the same bits, as far as both read: residual streams, rows and logits.
bool same_bits(const Run& a, const Run& b, const TestedShape& shape);
// What a run would be had it ended after so many tokens, without logits; nullopt: rows of a window that moved on
// cannot tell.
std::optional<Run> cut_to(const Run& run, std::int64_t tokens, const TestedShape& shape);

// Two runs of one state, one behind the other.
Run joined(const Run& first, const Run& second, std::int64_t layers, std::int64_t width);

}  // namespace kvtide
