// table_policies.h: the memories that a table sets side by side, for one model and one length.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments/arguments.h"
#include "kvtide/model.h"

namespace kvtide {

struct TablePolicy {
  std::string name;
  SessionOptions options;
  bool bounded = false;
  std::string note;  // why it is not measured
};

// Full f16 (the control) first, full q8_0, and for each preset and budget of the flags the procedural memory,
// the plain window of as many bytes and the plain recipe.
std::vector<TablePolicy> policies_of(const Arguments& arguments, const Model& model, const HeadTable& heads,
                                     std::int64_t context);

// Everything of the options that figures depend on, as text.
std::string options_key(const SessionOptions& options);

std::string text_hash(std::string_view text);  // SHA-256

}  // namespace kvtide
