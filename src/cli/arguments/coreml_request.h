// coreml_request.h: what `kvtide coreml` was asked to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvtide {

struct Arguments;

struct CoremlRequest {
  std::string action;             // "inspect", "lint", "run"
  std::string package;            // .mlpackage, .mlmodelc or .mil; of run also a folder with meta.yaml
  bool mil = false;               // of inspect
  std::string tokenizer;          // of lint and run: a folder; empty: none
  std::vector<std::int64_t> ids;  // of run: a prompt without a tokenizer
  std::int64_t chunk = 0;         // of run; 0: as many tokens in a call as go
};

// Throws Error(invalid_argument) naming the action or flag that is missing or too much.
void check_coreml_request(const Arguments& arguments);

}  // namespace kvtide
