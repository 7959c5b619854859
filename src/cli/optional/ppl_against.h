// ppl_against.h: kvtide ppl --stream --against full|window: a memory beside one that keeps everything, or
// beside the plain window of as many bytes.
#pragma once

#include <span>

#include "cli/arguments/arguments.h"
#include "kvtide/session.h"

namespace kvtide {

// Reads `tokens` with `session` and with that control side by side and prints the comparison by depth.
void ppl_against(const Arguments& arguments, Session& session, std::span<const TokenId> tokens);

// "the full f16 cache", or what stands in for it beyond the trained context.
std::string control_words(const SessionOptions& control);
// "4 sinks and the newest 1,200, q8_0"
std::string window_words(const SessionOptions& window);

}  // namespace kvtide
