#include "kvtide/validate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iomanip>
#include <set>
#include <sstream>

#include "base/out_of_memory.h"
#include "base/refuse.h"
#include "base/text.h"
#include "validate/evidence_twist.h"
#include "validate/inspection.h"

namespace kvtide {

const char* outcome_name(Outcome outcome) noexcept {
  return outcome == Outcome::passed ? "passed" : outcome == Outcome::failed ? "failed" : "skipped";
}

std::string list_text(const std::vector<std::string>& items) {
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i)
    out += (i == 0 ? "" : i + 1 == items.size() ? " and " : ", ") + items[i];
  return out;
}

std::string layers_text(const std::vector<int>& layers, int all) {
  if (static_cast<int>(layers.size()) == all && all > 1)
    return all == 2 ? std::string("both layers") : cat("all ", all, " layers");
  std::vector<std::string> items;
  for (const int layer : layers) items.push_back(cat(layer));
  if (items.size() > 6) {
    const std::size_t more = items.size() - 5;
    items.resize(5);
    items.push_back(cat(more, " more"));
  }
  return cat(layers.size() == 1 ? "layer " : "layers ", list_text(items));
}

std::string calls_text(const Inspection& in, const std::vector<std::size_t>& wrong) {
  std::vector<std::string> bad, good;
  for (std::size_t s = 0; s < in.schedules.size(); ++s)
    (std::find(wrong.begin(), wrong.end(), s) != wrong.end() ? bad : good).push_back(in.schedules[s].name);
  if (good.empty()) return "wrong in whatever calls the text is read";
  return cat(list_text(bad), bad.size() == 1 && bad[0].starts_with("a ") ? " is" : " are", " wrong, ",
             list_text(good), good.size() == 1 && good[0].starts_with("a ") ? " is" : " are", " right");
}

std::string cosine_text(double cosine) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(6) << cosine;
  return out.str();
}

std::string share_text(double share) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << 100.0 * share << "%";
  return out.str();
}

namespace {

void require_fit(const TestedShape& shape, const Golden& golden, const std::string& name) {
  if (golden.vocab != shape.vocab && !golden.logits.empty())
    refuse(cat("the reference (", name, ") has ", golden.vocab, " logits a token, the model ", shape.vocab));
  if (golden.hidden.empty() || !shape.gives_hidden) return;
  if (golden.layers != static_cast<std::int64_t>(shape.layers.size()) || golden.width != shape.width)
    refuse(cat("the reference (", name, ") has ", golden.layers, " layers of width ", golden.width,
               ", the model ", shape.layers.size(), " of width ", shape.width));
  if (!shape.gives_rows) return;
  for (std::size_t layer = 0; layer < golden.rows.size(); ++layer)
    if (golden.rows[layer].kv_heads != shape.layers[layer].kv_heads ||
        golden.rows[layer].head_dim != shape.layers[layer].head_dim)
      refuse(cat("the reference's rows of layer ", layer, " have ", golden.rows[layer].kv_heads, " heads of ",
                 golden.rows[layer].head_dim, ", the model's ", shape.layers[layer].kv_heads, " of ",
                 shape.layers[layer].head_dim));
}

// Tokens whose errors say little about a coarse model: special ones, and those with a tiny embedding.
void set_apart(Inspection& in) {
  std::vector<double> norms;
  if (!in.golden.hidden.empty())
    for (Pos t = 0; t < in.golden.size(); ++t) {
      double square = 0.0;
      for (const float x : in.golden.stream(0, t)) square += static_cast<double>(x) * static_cast<double>(x);
      norms.push_back(std::sqrt(square));
    }
  std::vector<double> sorted = norms;
  std::sort(sorted.begin(), sorted.end());
  const double usual = sorted.empty() ? 0.0 : sorted[sorted.size() / 2];
  for (std::size_t t = 0; t < in.tokens.size(); ++t) {
    const bool special = std::find(in.options.special.begin(), in.options.special.end(), in.tokens[t]) !=
                         in.options.special.end();
    const bool tiny = !norms.empty() && norms[t] < 0.25 * usual;
    in.set_apart.push_back(special || tiny);
    if (special || tiny)
      in.report.apart.push_back({static_cast<Pos>(t), special ? "special token" : "tiny embedding", 1.0});
  }
}

void make_schedules(Inspection& in) {
  const auto tokens = static_cast<std::int64_t>(in.tokens.size());
  std::set<std::int64_t> seen;
  for (const std::int64_t chunk : in.options.chunks)
    if (chunk >= 1 && (in.shape.largest_chunk == 0 || chunk <= in.shape.largest_chunk) && chunk <= tokens &&
        seen.insert(chunk).second)
      in.schedules.push_back(calls_of(chunk, tokens));
  if (in.schedules.empty())
    refuse("no length of calls is left: the model takes shorter ones than were asked for");
  in.schedules.push_back(mixed_calls(in.shape.largest_chunk, tokens));
  in.schedules.push_back(prompt_and_steps(in.shape.largest_chunk, tokens));
}

// Every token's embedding points the right way and is too long or too short by one factor; nullopt: not so.
std::optional<double> embedding_factor(const Inspection& in) {
  double lowest = INFINITY, highest = 0.0;
  for (const Run& run : in.chained)
    for (Pos t = 0; t < run.tokens; ++t) {
      const Likeness one = likeness(run.stream(0, t, in.shape.width), in.golden.stream(0, t));
      if (one.cosine < 0.9999) return std::nullopt;
      lowest = std::min(lowest, one.ratio), highest = std::max(highest, one.ratio);
    }
  return highest < 1.02 * lowest ? std::optional(lowest) : std::nullopt;
}

// The embedding is not a layer: it comes first and spoils all that follows.
bool explain_embedding(Inspection& in) {
  std::set<std::size_t> schedules;
  const Difference* first = nullptr;
  for (const Difference& d : in.differences)
    if (d.layer == -1) {
      schedules.insert(d.schedule);
      if (first == nullptr || d.token < first->token) first = &d;
    }
  if (first == nullptr) return false;
  Finding found;
  found.check = "chained layers";
  found.token = first->token;
  found.calls = in.schedules[first->schedule].name;
  found.cosine = first->cosine;
  const std::vector<std::size_t> wrong(schedules.begin(), schedules.end());
  const std::string begins = cat("what enters layer 0 is wrong from token ", first->token, " on (cosine ",
                                 cosine_text(first->cosine), "), before any layer has run");
  const std::string ends = cat(". ", calls_text(in, wrong));
  if (const auto factor = embedding_factor(in)) {
    found.cause = "embedding_scale";
    found.what = cat(begins, ": all of it is ", *factor, " times what it should be", ends);
    found.advice = "Look at the embedding's scale: Gemma multiplies by sqrt(width), others do not.";
    in.report.findings.push_back(std::move(found));
    return true;
  }
  const std::vector<Fit> fits = fits_of_embedding(in);
  for (const Fit& fit : fits) in.report.findings.push_back(finding_of(fit, found, begins + ": ", ends));
  if (!fits.empty()) return true;
  found.cause = "embedding";
  found.what = begins + ends;
  found.advice = "Look at the embedding's rows, its scale, and the position if positions are added to it.";
  in.report.findings.push_back(std::move(found));
  return true;
}

// NaN spreads: where it begins is what counts.
bool explain_not_finite(Inspection& in) {
  const bool isolated = !in.isolated.empty();
  const std::vector<Run>& runs = isolated ? in.isolated : in.chained;
  for (int layer = 0; layer < in.layers() && in.judges_layers(); ++layer)
    for (std::size_t s = 0; s < runs.size(); ++s)
      for (Pos t = 0; t < runs[s].tokens && !runs[s].finite; ++t) {
        const auto row = runs[s].stream(layer + 1, t, in.shape.width);
        if (std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); })) continue;
        Finding found;
        found.cause = "not_finite";
        found.check = isolated ? "isolated layers" : "chained layers";
        found.layer = layer;
        found.token = t;
        found.calls = in.schedules[s].name;
        found.cosine = -1.0;
        found.what = cat("layer ", layer, " gives NaN or infinity at token ", t, ", in ",
                         in.schedules[s].name, isolated ? ", though what enters it is finite" : "");
        found.advice =
            "Look for f16 that overflows (norms, scores, 8-bit scales), for a softmax over nothing, and for "
            "0 times "
            "what an unwritten slot holds.";
        in.report.findings.push_back(std::move(found));
        return true;
      }
  return false;
}

void explain(Inspection& in) {
  const bool layers_wrong = !in.differences.empty() || !in.row_differences.empty();
  if (layers_wrong) {
    const std::size_t before = in.report.findings.size();
    explain_embedding(in);
    explain_not_finite(in);
    if (!explain_rows(in) && !explain_rotation(in) && !explain_sight(in) && !explain_rope_width(in))
      explain_numbers(in);
    // What a layer computes comes before what a state does: the cause of the first is that of the second.
    std::rotate(in.report.findings.begin(), in.report.findings.begin() + static_cast<std::ptrdiff_t>(before),
                in.report.findings.end());
  } else {
    explain_outputs(in);
  }
  // What failed without a finding is told, too.
  const bool failed = std::any_of(in.report.checks.begin(), in.report.checks.end(),
                                  [](const CheckResult& c) { return c.outcome == Outcome::failed; });
  if (!failed || !in.report.findings.empty()) return;
  for (const CheckResult& check : in.report.checks) {
    if (check.outcome != Outcome::failed) continue;
    const bool threw = check.name == "reading";
    Finding found;
    found.cause = threw ? "refused" : "outputs";
    found.check = check.name;
    found.what = cat(check.name, ": ", check.detail);
    found.advice =
        threw ? "Begin with what the model threw; checks behind it may fail for the same reason."
        : in.judges_layers()
            ? "Layers and rows are right: look behind them, at the last norm and the output matrix."
            : "Let the model give its residual stream and rows, and the report will say where.";
    in.report.findings.push_back(std::move(found));
  }
}

// Parts of sentences were put together; sentences begin with a capital.
std::string sentences(std::string text) {
  bool begins = true;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (begins && text[i] >= 'a' && text[i] <= 'z') text[i] = static_cast<char>(text[i] - 'a' + 'A');
    if (text[i] != ' ') begins = false;
    if (text[i] == '.' && i + 1 < text.size() && text[i + 1] == ' ') begins = true;
  }
  return text;
}

// longer: the second text, of which one cut is read and nothing else is asked.
ValidationReport judged(TestedModel& model, Reference& reference, std::span<const TokenId> tokens,
                        const ValidateOptions& options, bool longer) {
  ValidationReport report;
  Inspection in{
      model, reference, options, model.shape(), {}, tokens, report, [&](double share, std::string_view what) {
        // The longer text comes last and takes the longer time.
        const double of_all = longer ? 0.4 + 0.6 * share : options.length > 0 ? 0.4 * share : share;
        if (options.progress && !options.progress(of_all, what))
          throw Error(ErrorCode::cancelled, "the validation was stopped");
      }};
  report.model = in.shape.name;
  report.reference = reference.name();
  report.tokens.assign(tokens.begin(), tokens.end());
  report.arithmetic = options.arithmetic;
  report.gate = options.gate;
  report.apart_gate = options.apart_gate;
  in.step(0.0, "the reference reads");
  in.golden = reference.run(tokens);
  require_fit(in.shape, in.golden, report.reference);
  set_apart(in);
  if (longer) {
    in.schedules = {mixed_calls(in.shape.largest_chunk, static_cast<std::int64_t>(tokens.size()))};
    // Logits of a long text take much memory; those of models whose layers are judged say nothing more.
    if (in.judges_layers()) in.golden.logits.clear();
  } else {
    make_schedules(in);
    check_read_twice(in);
  }
  check_layers(in);
  check_rows(in);
  check_precision(in);
  if (!longer) {
    check_state(in);
    check_free_run(in);
  }
  note_coverage(in);
  in.step(0.95, "looking for causes");
  explain(in);
  for (Finding& finding : report.findings) finding.what = sentences(std::move(finding.what));
  report.passed = std::none_of(report.checks.begin(), report.checks.end(),
                               [](const CheckResult& c) { return c.outcome == Outcome::failed; });
  return report;
}

}  // namespace

ValidationReport validate(TestedModel& model, Reference& reference, std::span<const TokenId> tokens,
                          const ValidateOptions& options) try {
  if (tokens.size() < 3)
    refuse(cat("a text of ", tokens.size(), " tokens shows too little; give at least 3"));
  const std::int64_t slots = model.shape().slots, longest = std::max(std::ssize(tokens), options.length),
                     written = static_cast<std::int64_t>(std::min(kFreePrompt, tokens.size() / 2)) +
                               options.free_tokens;
  if (slots > 0 && std::max(longest, written) > slots)
    refuse(cat("a text of ", longest, " tokens, or ", written, " with ", options.free_tokens,
               " greedy ones (free), do not fit into a state of ", slots, " slots; give fewer"));
  if (options.length > 0 && reference.text())
    refuse("a longer text needs a reference that can read it; golden arrays hold one text");
  ValidationReport report = judged(model, reference, tokens, options, false);
  if (options.length > std::ssize(tokens))
    add_longer(report, judged(model, reference, lengthened(tokens, options.length), options, true));
  return report;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
