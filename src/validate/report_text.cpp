#include "kvtide/validate.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "validate/worst.h"

namespace kvtide {
namespace {

constexpr std::size_t kMostFindings = 6, kWorst = 5, kLine = 100;

// Words of `text` in lines of at most kLine, each behind `margin`.
std::string wrapped(const std::string& text, const std::string& margin) {
  std::istringstream words(text);
  std::string out, line, word;
  while (words >> word) {
    if (!line.empty() && margin.size() + line.size() + 1 + word.size() > kLine) {
      out += margin + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return line.empty() ? out : out + margin + line + "\n";
}

std::string padded(std::string text, std::size_t size) {
  if (text.size() < size) text.resize(size, ' ');
  return text;
}

std::string place(const Finding& f) {
  std::string out;
  const auto add = [&](const std::string& part) { out += (out.empty() ? "" : ", ") + part; };
  if (f.layer) add(cat("layer ", *f.layer));
  if (f.token) add(cat("token ", *f.token));
  if (!f.calls.empty()) add(f.calls);
  if (f.cosine < 1.0) add("cosine " + fixed(f.cosine, 6));
  return out;
}

}  // namespace

std::string report_text(const ValidationReport& report) try {
  const bool compared = std::none_of(report.notes.begin(), report.notes.end(),
                                     [](const Note& n) { return n.name == "weights_not_compared"; });
  std::string out =
      cat(report.passed ? "PASSED" : "FAILED", compared ? ": " : " (weights not compared): ", report.model,
          ", against ", report.reference, ", ", report.tokens.size(), " tokens, gate ", report.gate, "\n");
  if (!report.arithmetic.empty()) out += cat("  arithmetic of the model: ", report.arithmetic, "\n");
  for (std::size_t i = 0; i < std::min(kMostFindings, report.findings.size()); ++i) {
    const Finding& f = report.findings[i];
    const std::string where = place(f);
    out += cat("\n  ", i + 1, ". ", f.cause, where.empty() ? "" : " (" + where + ")", "\n");
    out += wrapped(f.what + ".", "     ");
    out += wrapped("What to do: " + f.advice, "     ");
  }
  if (report.findings.size() > kMostFindings)
    out += cat("\n  and ", report.findings.size() - kMostFindings, " more: see --json\n");
  out += "\n";
  std::size_t name = 0;
  for (const CheckResult& check : report.checks) name = std::max(name, check.name.size());
  for (const CheckResult& check : report.checks)
    out +=
        cat("  ", padded(outcome_name(check.outcome), 8), padded(check.name, name + 2), check.detail, "\n");

  for (const Note& note : report.notes) out += "\n" + wrapped(note.name + ": " + note.what + ".", "  ");
  const WorstTable table = worst_of(report);
  if (!table.cells.empty()) {
    out += cat("\n  worst of what layers add",
               table.isolated ? ", each fed by the reference" : ", in the chain", ":\n");
    for (const WorstCell& cell : table.worst(kWorst))
      out += cat("    layer ", padded(cat(cell.layer), 4), "token ", padded(cat(cell.token), 5), "cosine ",
                 fixed(cell.cosine, 6), "  max-abs ", padded(fixed(cell.max_abs, 6), 11), " ",
                 report.schedules[cell.schedule].name, "\n");
  }
  for (const TokenNote& note : report.apart)
    out += cat("  apart: token ", note.token, ", a ", note.why, ", worst cosine ", fixed(note.cosine, 6),
               " (gate ", report.apart_gate, ")\n");
  return out;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
