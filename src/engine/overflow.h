// overflow.h: what happens when a text goes on and the memory is full.
//
// Rolling is the state's own business (Rolling in SessionOptions); refill is done here, with the session's
// public calls: forget everything, then read what is to stay from position 0 again.
// Thread rules: those of Session.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "kvtide/session.h"

namespace kvtide {

enum class Overflow { stop, rolling, refill };
const char* overflow_name(Overflow overflow) noexcept;

// What a refill keeps of a text that fills `capacity` tokens: the first `pinned` ones and, of the rest, the
// newest that fill half of what is left, so that as many can be read before the next refill. Needs 0 <=
// pinned <= capacity - 2 and at least `capacity` tokens; throws Error(invalid_argument) naming the numbers.
std::vector<TokenId> tokens_to_refill(std::span<const TokenId> tokens, std::int64_t capacity,
                                      std::int64_t pinned);

struct Refill {
  Pos position = 0;                    // of the memory when it was full
  std::int64_t kept = 0, dropped = 0;  // tokens
  double milliseconds = 0.0;
};

// Makes room in a session that has none. Afterwards the session is, bit for bit, one that only ever read the
// tokens kept; its logits are empty until the next token. progress: as in ReadOptions; a refill that it stops
// leaves a part of the tokens kept.
Refill refill(Session& session, std::int64_t pinned, const std::function<bool(std::int64_t)>& progress = {});

}  // namespace kvtide
