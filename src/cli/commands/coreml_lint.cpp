// kvtide coreml lint: what is wrong with a package, as far as its program says without being run; with --run also how it
// behaves when a text is cut into calls in another way.
#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "base/text.h"
#include "cli/commands/coreml_actions.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/inspect_folder.h"
#include "cli/output/terminal.h"
#include "coreml/decode/check_splits.h"
#include "coreml/decode/packages_manifest.h"
#include "coreml/lint/lint.h"
#include "coreml/program/package.h"

namespace kvtide {
namespace {

// "main, line 12, new_cache"; names come from the file.
std::string place_of(const coreml::Finding& finding) {
  std::string place = finding.function.empty() ? "package" : shown(finding.function);
  if (finding.line > 0) place += cat(", line ", finding.line);
  if (!finding.operation.empty()) place += ", " + shown(finding.operation);
  return place;
}

Json findings_json(const std::vector<coreml::Finding>& findings) {
  Json list = Json::array();
  for (const coreml::Finding& finding : findings) {
    Json one = Json::object();
    one.set("severity", coreml::severity_name(finding.severity))
        .set("rule", finding.rule)
        .set("function", finding.function)
        .set("operation", finding.operation)
        .set("line", finding.line)
        .set("message", finding.message);
    list.push(std::move(one));
  }
  return list;
}

// A folder of several packages has a program in each.
std::vector<coreml::Finding> findings_of(const Arguments& arguments) {
  const std::string& path = arguments.coreml.package;
  std::vector<std::string> packages = {path};
  if (coreml::is_packages_folder(path)) packages = coreml::read_packages(path);
  std::vector<coreml::Finding> findings;
  for (const std::string& package : packages)
    for (coreml::Finding& each : coreml::lint(coreml::open_package(package), arguments.coreml.tokenizer)) {
      if (packages.size() > 1)
        each.function = cat(std::filesystem::path(package).filename().string(), ", ", each.function);
      findings.push_back(std::move(each));
    }
  if (!arguments.coreml.splits) return findings;
  CoremlOptions options;
  options.threads = arguments.session.threads;
  options.kernels = arguments.session.kernels;
  auto behaviour = coreml::check_splits(path, options);
  findings.insert(findings.begin(), behaviour.begin(), behaviour.end());
  return findings;
}

}  // namespace

int coreml_lint(const Arguments& arguments) {
  const auto findings = findings_of(arguments);
  const auto errors = std::count_if(findings.begin(), findings.end(), [](const coreml::Finding& finding) {
    return finding.severity == coreml::Severity::error;
  });
  if (arguments.json) {
    Json out = Json::object();
    out.set("errors", static_cast<std::int64_t>(errors)).set("findings", findings_json(findings));
    write_result(out.text() + "\n");
  } else {
    for (const coreml::Finding& finding : findings)
      write_result(cat(coreml::severity_name(finding.severity), ": ", finding.rule, " (", place_of(finding),
                       "): ", finding.message, "\n"));
    if (findings.empty()) write_result("nothing found that is wrong\n");
  }
  return errors > 0 ? kExitInvalid : kExitFine;
}

}  // namespace kvtide
