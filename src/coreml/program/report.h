// report.h: what a package holds, as JSON: what `kvtide coreml inspect --json` prints and inspect_coreml returns.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "coreml/program/package.h"

namespace kvtide::coreml {

Json package_report(const Package& package);

// What of it a listing for people needs, too.
using OperationCounts = std::vector<std::pair<std::string, std::int64_t>>;
OperationCounts operations_of(const Package& package,
                              const std::string& function);  // the most frequent first
std::int64_t number_of(const OperationCounts& counts);
std::int64_t bytes_of_states(const std::vector<Feature>& states);
std::string type_of(const Feature& feature);  // "fp16"; "other": no tensor

}  // namespace kvtide::coreml
