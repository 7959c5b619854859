// flags.h: every flag of the program in one table: its spellings, which commands take it and what it does.
#pragma once

#include <span>
#include <string_view>

#include "cli/arguments/arguments.h"
#include "cli/arguments/command.h"
#include "cli/arguments/flag_values.h"

namespace kvtide {

struct Flag {
  std::string_view short_name;  // "-ctk"; may be empty
  std::string_view name;        // "--cache-type-k"
  std::string_view value;       // what stands for the value in the help; empty: a switch without one
  std::string_view help;
  unsigned commands;                                      // set of in(Command)
  void (*set)(Arguments& arguments, const Given& given);  // throws Error(invalid_argument)
};

constexpr unsigned in(Command command) { return 1u << static_cast<unsigned>(command); }

std::span<const Flag> all_flags();
std::span<const Flag> procedural_flags();  // likewise: those about a procedural memory
std::span<const Flag> shard_flags();       // likewise: those of shards
std::span<const Flag> eval_flags();        // likewise: those of commands that judge memories
std::span<const Flag> memory_flags();      // part of all_flags(): those about the KV memory

}  // namespace kvtide
