// ppl_against.h: kvtide ppl --stream --against full: what a memory loses against one that keeps everything.
#pragma once

#include <span>

#include "cli/arguments.h"
#include "kvtide/session.h"

namespace kvtide {

// Reads `tokens` with `session` and with a full f16 cache side by side and prints the comparison by depth.
void ppl_against_full(const Arguments& arguments, Session& session, std::span<const TokenId> tokens);

// "the full f16 cache", or what stands in for it beyond the trained context.
std::string control_words(const SessionOptions& control);

}  // namespace kvtide
