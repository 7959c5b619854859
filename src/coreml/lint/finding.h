// finding.h: what lint says of a package.
//
// Thread rules: plain values.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace kvtide::coreml {

enum class Severity {
  hint,     // may be slow, or fail on some devices
  warning,  // wrong in some uses
  error,    // wrong
};

struct Finding {
  Severity severity = Severity::error;
  std::string rule;       // "state-never-written": one of docs/coreml.md
  std::string function;   // "main"; empty: of the package
  std::string operation;  // its name; empty: of the function
  std::size_t line = 0;   // of the operation, as program.h counts; 0: of the function
  std::string message;    // one sentence
};

const char* severity_name(Severity severity);

}  // namespace kvtide::coreml
