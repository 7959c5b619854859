// coreml_request.h: what `kvtide coreml` was asked to do.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvtide/coreml.h"

namespace kvtide {

struct Arguments;

struct CoremlRequest {
  std::string action;             // "inspect", "lint", "run", "export", "bench"
  std::string package;            // .mlpackage, .mlmodelc or .mil; of run also a folder of several
  bool mil = false;               // of inspect
  std::string tokenizer;          // of lint and run: a folder; empty: none
  std::vector<std::int64_t> ids;  // of run: a prompt without a tokenizer
  std::int64_t chunk = 0;         // of run and bench; 0: as many tokens in a call as go
  std::string load, save;         // of run: what was read before, and what was read; empty: none
  bool splits = false;            // of lint: run it, too
  std::int64_t read = 64;         // of bench: tokens that are read first
  bool read_given = false;
  CoremlExport how;             // of export
  bool changes_export = false;  // whether one of its flags was given
};

// Throws Error(invalid_argument) naming the action or flag that is missing or too much.
void check_coreml_request(const Arguments& arguments);

}  // namespace kvtide
