// The public face of lint: kvtide/coreml.h.
#include <algorithm>
#include <filesystem>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "coreml/decode/check_splits.h"
#include "coreml/decode/packages_at.h"
#include "coreml/lint/lint.h"
#include "coreml/program/mil_printer.h"
#include "kvtide/coreml.h"

namespace kvtide {
namespace {

std::vector<CoremlFinding> as_public(std::vector<coreml::Finding> findings) {
  std::vector<CoremlFinding> out;
  for (coreml::Finding& each : findings)
    out.push_back({coreml::severity_name(each.severity), std::move(each.rule), std::move(each.function),
                   std::move(each.operation), each.line, std::move(each.message)});
  return out;
}

}  // namespace

std::vector<CoremlFinding> lint_coreml(const std::string& path, const std::string& tokenizer) {
  return or_out_of_memory([&] {
    const std::vector<std::string> packages = coreml::packages_at(path);
    std::vector<coreml::Finding> findings;
    for (const std::string& package : packages) {
      coreml::Package opened = coreml::open_package(package);
      coreml::number_lines(opened.program, &opened.description);
      for (coreml::Finding& each : coreml::lint(opened, tokenizer)) {
        if (packages.size() > 1)
          each.function =
              cat(std::filesystem::path(package).lexically_normal().filename().string(), ", ", each.function);
        findings.push_back(std::move(each));
      }
    }
    std::stable_sort(
        findings.begin(), findings.end(),
        [](const coreml::Finding& a, const coreml::Finding& b) { return a.severity > b.severity; });
    return as_public(std::move(findings));
  });
}

std::vector<CoremlFinding> lint_coreml_calls(const std::string& path, const CoremlOptions& options) {
  return or_out_of_memory([&] { return as_public(coreml::check_splits(path, options)); });
}

}  // namespace kvtide
