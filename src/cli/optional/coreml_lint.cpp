// kvtide coreml lint: what is wrong with a package, as far as its program says without being run; with --run also how it
// behaves when a text is cut into calls in another way.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "base/text.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/inspect_folder.h"
#include "cli/optional/coreml_actions.h"
#include "cli/output/terminal.h"
#include "kvtide/coreml.h"

namespace kvtide {
namespace {

// "main, line 12, new_cache"; names come from the file.
std::string place_of(const CoremlFinding& finding) {
  std::string place = finding.function.empty() ? "package" : shown(finding.function);
  if (finding.line > 0) place += cat(", line ", finding.line);
  if (!finding.operation.empty()) place += ", " + shown(finding.operation);
  return place;
}

Json findings_json(const std::vector<CoremlFinding>& findings) {
  Json list = Json::array();
  for (const CoremlFinding& finding : findings) {
    Json one = Json::object();
    one.set("severity", finding.severity)
        .set("rule", finding.rule)
        .set("function", finding.function)
        .set("operation", finding.operation)
        .set("line", finding.line)
        .set("message", finding.message);
    list.push(std::move(one));
  }
  return list;
}

std::vector<CoremlFinding> findings_of(const Arguments& arguments) {
  const std::string& path = arguments.coreml.package;
  std::vector<CoremlFinding> findings = lint_coreml(path, arguments.coreml.tokenizer);
  if (!arguments.coreml.splits) return findings;
  CoremlOptions options;
  options.threads = arguments.session.threads;
  options.kernels = arguments.session.kernels;
  const auto behaviour = lint_coreml_calls(path, options);
  findings.insert(findings.begin(), behaviour.begin(), behaviour.end());
  return findings;
}

}  // namespace

int coreml_lint(const Arguments& arguments) {
  const auto findings = findings_of(arguments);
  const auto errors = std::count_if(findings.begin(), findings.end(),
                                    [](const CoremlFinding& finding) { return finding.severity == "error"; });
  if (arguments.json) {
    Json out = Json::object();
    out.set("errors", static_cast<std::int64_t>(errors)).set("findings", findings_json(findings));
    write_result(out.text() + "\n");
  } else {
    for (const CoremlFinding& finding : findings)
      write_result(
          cat(finding.severity, ": ", finding.rule, " (", place_of(finding), "): ", finding.message, "\n"));
    if (findings.empty()) write_result("nothing found that is wrong\n");
  }
  return errors > 0 ? kExitInvalid : kExitFine;
}

}  // namespace kvtide
