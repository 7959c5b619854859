// validate_request.h: what the user asks of `kvtide validate`. A plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvtide/types.h"

namespace kvtide {

struct ValidateRequest {
  // A folder of arrays, or a model; empty: a plain forward pass of the model itself.
  std::string reference;
  std::vector<TokenId> ids;  // the text; empty: another
  std::int64_t tokens = 64;
  std::int64_t length = 0;  // tokens of a second, longer text; 0: none
  std::vector<std::int64_t> chunks = {1, 2, 3, 4, 7};
  std::int64_t free_tokens = 16;
  std::optional<double> gate;  // nullopt: as the arithmetic is
  bool everyday = false;       // the arithmetic of every day, also where all weights are floats
  std::string html;            // a file to write; empty: none
};

}  // namespace kvtide
