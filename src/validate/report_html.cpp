#include <algorithm>
#include <iomanip>
#include <sstream>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "kvtide/validate.h"
#include "validate/heat_map.h"
#include "validate/worst.h"

namespace kvtide {
namespace {

// 0.00305, 7.18e-08: three digits say how large an error is.
std::string short_number(double value) {
  std::ostringstream out;
  out << std::setprecision(3) << value;
  return out.str();
}

// Tokens between two labels, so that these do not run into each other.
int label_step(int cell) {
  for (const int step : {1, 2, 5, 10, 20, 50, 100})
    if (step * cell >= 24) return step;
  return 200;
}

constexpr const char* kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;color:#222;max-width:76rem;margin:2rem auto;padding:0 1rem}"
    "h1{font-size:1.5rem;margin-bottom:.2rem}h2{font-size:1.1rem;margin:2rem 0 .4rem}"
    ".passed{color:#006e46}.failed{color:#b01419}.skipped{color:#888}"
    "table{border-collapse:collapse}td,th{padding:.15rem .8rem .15rem 0;text-align:left;vertical-align:top}"
    "th{border-bottom:1px solid "
    "#ccc;font-weight:600}.n{text-align:right!important;font-variant-numeric:tabular-nums}"
    ".finding{border-left:4px solid #b01419;padding:.2rem 0 .2rem 1rem;margin:1rem 0}"
    ".finding p{margin:.3rem 0}code{background:#f3f3f3;padding:0 .25rem}"
    ".scale{position:relative;max-width:32rem;margin:.4rem 0 1rem 64px;font-size:11px}"
    ".scale div{height:12px;margin-bottom:2px}.scale span:last-child{float:right}"
    "svg{max-width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:#333}.note{color:#666}"
    ".wide{overflow-x:auto}.wide svg{max-width:none}.first{font-size:1.1rem;margin:.2rem 0}"
    "@media(max-width:40rem){body{margin:.6rem auto;padding:0 "
    ".6rem}h1{font-size:1.2rem;overflow-wrap:anywhere}"
    "td,th{padding-right:.5rem}.finding{padding-left:.6rem}}";

std::string heat_map(const ValidationReport& report, const WorstTable& table, const std::vector<int>& order) {
  const int tokens = static_cast<int>(table.tokens);
  const int cell = std::clamp(1000 / tokens, 5, 26),
            high = std::clamp(700 / static_cast<int>(table.layers), 12, 24);
  constexpr int kLeft = 64, kTop = 20;
  const int width = kLeft + tokens * cell + 84, height = kTop + static_cast<int>(order.size()) * high + 4;
  std::string out = cat("<svg viewBox=\"0 0 ", width, " ", height, "\" width=\"", width,
                        "\" font-size=\"11\" role=\"img\">\n");
  for (int t = 0; t < tokens; t += label_step(cell))
    out += cat("<text x=\"", kLeft + t * cell + (cell - 1) / 2, "\" y=\"14\" text-anchor=\"middle\">", t,
               "</text>");
  for (std::size_t row = 0; row < order.size(); ++row) {
    const int layer = order[row], y = kTop + static_cast<int>(row) * high;
    double worst = 1.0;
    out += cat("\n<text x=\"0\" y=\"", y + high - 5, "\">layer ", layer, "</text>");
    for (Pos t = 0; t < tokens; ++t) {
      const WorstCell& found = table.at(layer, t);
      worst = std::min(worst, found.cosine);
      out += cat("<rect x=\"", kLeft + t * cell, "\" y=\"", y, "\" width=\"", cell - 1, "\" height=\"",
                 high - 1, "\" fill=\"", cosine_colour(found.cosine, report.gate), "\"><title>layer ", layer,
                 ", token ", t, " (id ", report.tokens[static_cast<std::size_t>(t)], "): cosine ",
                 fixed(found.cosine, 6), ", max-abs ", short_number(found.max_abs), ", ",
                 markup_text(report.schedules[found.schedule].name), "</title></rect>");
    }
    out += cat("<text x=\"", kLeft + tokens * cell + 6, "\" y=\"", y + high - 5, "\">", fixed(worst, 6),
               "</text>");
  }
  return out + "\n</svg>\n";
}

std::string schedules_table(const ValidationReport& report) {
  std::string out =
      "<table><tr><th>calls</th><th class=n>isolated, worst</th><th class=n>chained sum, worst</th>"
      "<th class=n>logits, worst</th><th class=n>KL, mean</th><th class=n>KL, worst</th>"
      "<th class=n>likeliest token the same</th><th>same bits as the "
      "first</th></tr>\n";
  for (std::size_t s = 0; s < report.schedules.size(); ++s) {
    const ScheduleResult& r = report.schedules[s];
    const auto worst = [](const std::vector<float>& v) {
      return v.empty() ? std::string("-")
                       : fixed(static_cast<double>(*std::min_element(v.begin(), v.end())), 6);
    };
    out += cat("<tr><td>", markup_text(r.name), "</td><td class=n>", worst(r.isolated.change_cosine),
               "</td><td class=n>", worst(r.chained.sum_cosine), "</td><td class=n>",
               fixed(r.logits_cosine, 6), "</td><td class=n>", short_number(r.kl_mean), "</td><td class=n>",
               short_number(r.kl_worst), "</td><td class=n>", r.top_same, " of ", r.top_asked, "</td><td>",
               s == 0        ? ""
               : r.same_bits ? "yes"
                             : "no",
               "</td></tr>\n");
  }
  return out + "</table>\n";
}

// Valid or not, what, where.
std::string verdict(const ValidationReport& report) {
  const bool compared = std::none_of(report.notes.begin(), report.notes.end(),
                                     [](const Note& n) { return n.name == "weights_not_compared"; });
  std::string out = cat("<p class=first>", report.passed ? "Valid" : "Not valid",
                        report.passed && !compared ? ", but weights were not compared with a model's" : "");
  if (!report.findings.empty()) {
    const Finding& f = report.findings.front();
    out += cat(": <b>", markup_text(f.cause), "</b>");
    if (f.layer) out += cat(" in layer ", *f.layer);
    if (f.token) out += cat(", from token ", *f.token, " on");
    if (report.findings.size() > 1) out += cat(" (and ", report.findings.size() - 1, " more)");
  }
  return out + ".</p>\n";
}

std::string wide(const std::string& content) { return "<div class=wide>" + content + "</div>\n"; }

}  // namespace

std::string report_html(const ValidationReport& report) try {
  std::string out = cat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>",
      report.passed ? "passed" : "failed", ": ", markup_text(report.model), "</title><style>", kStyle,
      "</style></head><body>\n<h1><span class=\"", report.passed ? "passed\">Passed" : "failed\">Failed",
      "</span>: ", markup_text(report.model), "</h1>\n", verdict(report), "<p class=note>Against ",
      markup_text(report.reference), "; ", report.tokens.size(),
      " tokens; every layer and token must reach a cosine of ", report.gate, ".",
      report.arithmetic.empty() ? "" : cat(" The model's arithmetic: ", markup_text(report.arithmetic), "."),
      "</p>\n");
  for (const Finding& f : report.findings) {
    out += cat("<div class=finding><p><b>", markup_text(f.cause), "</b>");
    if (f.layer) out += cat(", layer ", *f.layer);
    if (f.token) out += cat(", token ", *f.token);
    if (!f.calls.empty()) out += cat(", ", markup_text(f.calls));
    if (f.cosine < 1.0) out += cat(", cosine ", fixed(f.cosine, 6));
    out += cat("</p><p>", markup_text(f.what), ".</p><p><b>What to do:</b> ", markup_text(f.advice),
               "</p></div>\n");
  }
  const WorstTable table = worst_of(report);
  if (!table.cells.empty()) {
    out +=
        cat("<h2>Layers and tokens, worst layers first</h2>\n<p class=note>The worst cosine of what a layer "
            "adds, over ",
            report.schedules.size(), " ways to cut the text",
            table.isolated ? ", every layer fed with the reference's input" : ", layers in a chain",
            ". Green reaches the gate, yellow to red does not. At the right the worst of the layer.</p>\n",
            wide(heat_map(report, table, table.layers_worst_first())), colour_scale(report.gate));
    std::vector<int> natural;
    for (int layer = 0; layer < table.layers; ++layer) natural.push_back(layer);
    if (natural != table.layers_worst_first())
      out += cat("<details><summary>In the order of the model</summary>\n",
                 wide(heat_map(report, table, natural)), "</details>\n");
    out +=
        "<h2>The worst</h2>\n<table><tr><th class=n>layer</th><th class=n>token</th><th class=n>cosine</th>"
        "<th class=n>max-abs</th><th>calls</th></tr>\n";
    for (const WorstCell& cell : table.worst(12))
      out += cat("<tr><td class=n>", cell.layer, "</td><td class=n>", cell.token, "</td><td class=n>",
                 fixed(cell.cosine, 6), "</td><td class=n>", short_number(cell.max_abs), "</td><td>",
                 markup_text(report.schedules[cell.schedule].name), "</td></tr>\n");
    out += "</table>\n";
  }
  if (!report.notes.empty()) out += "<h2>To know</h2>\n";
  for (const Note& note : report.notes)
    out += cat("<p><b>", markup_text(note.name), "</b>: ", markup_text(note.what), ".</p>\n");
  out += "<h2>Checks</h2>\n<div class=wide><table>\n";
  for (const CheckResult& check : report.checks)
    out += cat("<tr><td class=\"", outcome_name(check.outcome), "\">", outcome_name(check.outcome),
               "</td><td>", markup_text(check.name), "</td><td>", markup_text(check.detail), "</td></tr>\n");
  out += cat("</table></div>\n<h2>By how the text was cut</h2>\n", wide(schedules_table(report)));
  if (!report.apart.empty()) {
    out +=
        cat("<h2>Listed apart</h2>\n<p class=note>Tokens whose errors say little about a coarse model; their "
            "gate is ",
            report.apart_gate,
            ".</p>\n<table><tr><th class=n>token</th><th>why</th><th class=n>worst cosine</th></tr>\n");
    for (const TokenNote& note : report.apart)
      out += cat("<tr><td class=n>", note.token, "</td><td>", markup_text(note.why), "</td><td class=n>",
                 fixed(note.cosine, 6), "</td></tr>\n");
    out += "</table>\n";
  }
  return out + "</body></html>\n";
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
