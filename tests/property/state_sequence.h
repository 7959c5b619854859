// state_sequence.h: made-up sequences of everything that can be done to KV states, run against the real state
// and against StateModel at once.
//
// A step says what to do, not with which numbers: those follow from its seed and the state it meets, so that
// a sequence still means something when steps before it are deleted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "state/spec/spec.h"

namespace kvtide::testing {

struct SequenceStep {
  enum class Kind {
    append,
    dropped_step,
    expand,
    compact,
    truncate,
    drop,
    attention,
    fork,
    forget_fork,
    reload,
    clear
  };
  Kind kind = Kind::append;
  std::uint64_t seed = 0;
};

struct Sequence {
  KvSpec spec;
  std::vector<SequenceStep> steps;
};

Sequence made_up_sequence(std::uint64_t seed);

// What a state keeps of a text.
enum class Keeping { everything, windows_beside, rolling, rolling_and_windows };
inline constexpr Keeping kKeepings[] = {Keeping::everything, Keeping::windows_beside, Keeping::rolling,
                                        Keeping::rolling_and_windows};
// A sequence for one policy and one pair of types, which ends with a save, a load and more text.
Sequence made_up_sequence(std::uint64_t seed, Keeping keeping, DType key_type, DType value_type);

std::string describe(const KvSpec& spec);

// "" when the states did what the contract says at every step; otherwise the steps with their numbers, and
// what was wrong after the last of them.
// made: where to add the number of steps that were made, without those that were to be refused or did
// nothing.
std::string run_sequence(const Sequence& sequence, std::int64_t* made = nullptr);

}  // namespace kvtide::testing
