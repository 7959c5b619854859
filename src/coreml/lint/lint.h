// lint.h: what is wrong with a package, as far as its program says without being run.
//
// Every sentence names the state, the input or the rows that it is about; docs/coreml.md says what each rule means. What is not
// known (a shape, an address) is not held against a package.
// Errors: those of reading config.json and tokenizer.json.
// Thread rules: any thread.
#pragma once

#include <string>
#include <vector>

#include "coreml/lint/finding.h"
#include "coreml/program/package.h"

namespace kvtide::coreml {

// `tokenizer`: a folder with config.json and tokenizer.json; empty: none is looked at. The worst first, then by line.
std::vector<Finding> lint(const Package& package, const std::string& tokenizer = "");

}  // namespace kvtide::coreml
