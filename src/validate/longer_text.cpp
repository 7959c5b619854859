// A second, longer text: most of what it costs is the reference's, so that it is read in one cut only.
#include <algorithm>

#include "base/text.h"
#include "validate/inspection.h"

namespace kvtide {

std::vector<TokenId> lengthened(std::span<const TokenId> tokens, std::int64_t length) {
  std::vector<TokenId> out(tokens.begin(), tokens.end());
  // Drawn with a fixed generator: a text that repeats itself would hide rows that are taken for each other.
  std::uint64_t state = 0x9e3779b97f4a7c15u;
  while (std::ssize(out) < length) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    out.push_back(tokens[static_cast<std::size_t>((state >> 33u) % tokens.size())]);
  }
  return out;
}

void add_longer(ValidationReport& report, ValidationReport longer) {
  const std::size_t tokens = longer.tokens.size();
  for (CheckResult& check : longer.checks) {
    if (check.outcome == Outcome::skipped || check.name == "calls of any length") continue;
    report.checks.push_back(
        {cat(check.name, ", ", tokens, " tokens"), check.outcome, std::move(check.detail)});
  }
  for (Finding& found : longer.findings) {
    const bool known = std::any_of(report.findings.begin(), report.findings.end(),
                                   [&](const Finding& f) { return f.cause == found.cause; });
    if (!known) report.findings.push_back(std::move(found));
  }
  for (Note& note : longer.notes) {
    const auto same = std::find_if(report.notes.begin(), report.notes.end(),
                                   [&](const Note& n) { return n.name == note.name; });
    if (same == report.notes.end())
      report.notes.push_back(std::move(note));
    else if (note.name == "coverage")
      same->what = cat(note.what, "; of these ", report.tokens.size(), " tokens in every cut");
  }
  report.passed = report.passed && longer.passed;
}

}  // namespace kvtide
