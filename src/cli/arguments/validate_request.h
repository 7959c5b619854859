// validate_request.h: what the user asks of `kvtide validate`. A plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvtide {

struct ValidateRequest {
  std::string reference;  // a folder; empty: a plain forward pass of the model itself
  std::int64_t tokens = 64;
  std::vector<std::int64_t> chunks = {1, 2, 3, 4, 7};
  std::int64_t free_tokens = 16;
  std::optional<double> gate;  // nullopt: as the arithmetic is
  bool everyday = false;       // the arithmetic of every day, also where all weights are floats
  std::string html;            // a file to write; empty: none
};

}  // namespace kvtide
