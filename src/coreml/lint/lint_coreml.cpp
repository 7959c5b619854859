// The public face of lint: kvtide/coreml.h.
#include "base/out_of_memory.h"
#include "coreml/lint/lint.h"
#include "kvtide/coreml.h"

namespace kvtide {

std::vector<CoremlFinding> lint_coreml(const std::string& package, const std::string& tokenizer) {
  return or_out_of_memory([&] {
    std::vector<CoremlFinding> findings;
    for (coreml::Finding& each : coreml::lint(coreml::open_package(package), tokenizer))
      findings.push_back({coreml::severity_name(each.severity), std::move(each.rule),
                          std::move(each.function), std::move(each.operation), each.line,
                          std::move(each.message)});
    return findings;
  });
}

}  // namespace kvtide
