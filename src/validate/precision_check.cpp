// Errors that the gate lets pass. A gate has room for half precision, and in that room a wrong epsilon or a
// softmax in bf16 would hide. So: where numbers are right to f32 the model computes in f32, and the others have
// to be right to f32, too. Where none are, an error passes for rounding unless a known mistake explains it.
#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "validate/evidence_twist.h"
#include "validate/inspection.h"

namespace kvtide {
namespace {

constexpr double kRightToF32 = 5e-6;   // relative: no half precision is behind that
constexpr double kRounding = 4.8e-7;   // of f32 sums beside what is added
constexpr double kEnoughExact = 0.05;  // of all vectors

struct Census {
  std::int64_t vectors = 0, exact = 0;
  double worst = 0.0;
  std::vector<Difference> layers, rows;
  bool logits = false;

  bool differs() const { return !layers.empty() || !rows.empty() || logits; }
  bool of_f32() const {
    return static_cast<double>(exact) >=
           kEnoughExact * static_cast<double>(std::max<std::int64_t>(vectors, 1));
  }
  // Whether it is beyond what f32 leaves; room: for what f32 cannot hold.
  bool count(double relative, double room) {
    ++vectors;
    exact += relative <= kRightToF32;
    worst = std::max(worst, relative);
    return relative > kF32 + room;
  }
};

void count_layers(Census& census, const Inspection& in, std::size_t s, bool isolated) {
  const Run& run = isolated ? in.isolated[s] : in.chained[s];
  const Golden& golden = in.wanted(s, isolated);
  std::vector<float> found(static_cast<std::size_t>(golden.width)), right(found.size());
  for (int layer = 0; layer < in.layers(); ++layer)
    for (Pos t = 0; t < run.tokens; ++t) {
      if (isolated ? in.ties.contains({layer, t}) : !in.courses[s].judges(layer, t)) continue;
      const auto was = golden.stream(layer, t), now = golden.stream(layer + 1, t);
      const auto entered = isolated ? was : run.stream(layer, t, golden.width);
      const auto left = run.stream(layer + 1, t, golden.width);
      double stream = 0.0;
      for (std::size_t i = 0; i < found.size(); ++i) {
        found[i] = left[i] - entered[i];
        right[i] = now[i] - was[i];
        stream += static_cast<double>(now[i]) * static_cast<double>(now[i]);
      }
      const Likeness one = likeness(found, right);
      const double room = one.length > 0.0 ? kRounding * std::sqrt(stream) / one.length : 1.0;
      if (census.count(one.relative(), (isolated ? 4.0 : 40.0) * room))
        census.layers.push_back({s, isolated, layer, t, one.cosine});
    }
}

void count_rows(Census& census, const Inspection& in, std::size_t s, bool isolated) {
  const Run& run = isolated ? in.isolated[s] : in.chained[s];
  for (int layer = 0; layer < static_cast<int>(run.rows.size()); ++layer) {
    const HeldRows& found = run.rows[static_cast<std::size_t>(layer)];
    const HeldRows& right = in.wanted(s, isolated).rows[static_cast<std::size_t>(layer)];
    for (std::int64_t head = 0; head < right.kv_heads; ++head)
      for (Pos t = found.first; t < std::min(run.tokens, found.first + found.rows); ++t)
        for (const bool keys : {true, false}) {
          const Likeness one = keys ? likeness(found.key(head, t), right.key(head, t))
                                    : likeness(found.value(head, t), right.value(head, t));
          if (census.count(one.relative(), one.length > 1e-6 ? 0.0 : 1.0))
            census.rows.push_back({s, isolated, layer, t, one.cosine});
        }
  }
}

void count_logits(Census& census, const Inspection& in, std::size_t s) {
  const auto vocab = static_cast<std::size_t>(in.shape.vocab);
  const Run& run = in.chained[s];
  for (std::size_t i = 0; i < run.known.size(); ++i) {
    if (!in.courses[s].judges(in.layers(), run.known[i])) continue;
    const auto right = std::span(in.courses[s].golden->logits);
    const Likeness one = likeness(std::span(run.logits).subspan(i * vocab, vocab),
                                  right.subspan(static_cast<std::size_t>(run.known[i]) * vocab, vocab));
    census.logits |= census.count(one.relative(), 0.0);
  }
}

Census census_of(const Inspection& in) {
  Census census;
  const bool isolated = in.isolates();
  for (std::size_t s = 0; s < in.schedules.size(); ++s) {
    if (in.judges_layers()) count_layers(census, in, s, isolated);
    if (in.judges_rows()) count_rows(census, in, s, isolated);
    if (!in.golden.logits.empty()) count_logits(census, in, s);
  }
  return census;
}

// Whether a known mistake is behind it, in the layer where it begins or in all of them.
bool explained(Inspection& in) {
  if (const auto wrong = lowest_wrong(in, true)) return !fits_of_layer(in, *wrong).empty();
  return !(in.judges_layers() ? fits_of_head(in) : fits_of_model(in)).empty();
}

}  // namespace

void check_precision(Inspection& in) {
  const char* name = "precision";
  const bool complete = std::all_of(in.chained.begin(), in.chained.end(),
                                    [&](const Run& run) { return run.finite && run.refusal.empty(); });
  // In a chain small errors add up; layers that are right one by one are looked at all the same.
  const bool differs = std::any_of(in.differences.begin(), in.differences.end(), [&](const Difference& d) {
    return d.layer < 0 || d.isolated == in.isolates();
  });
  if (!in.options.precision || !complete || differs || !in.row_differences.empty()) return;
  in.step(0.77, name);
  Census census = census_of(in);
  if (!census.differs()) {
    in.add_check(name, Outcome::passed, cat("f32 throughout: the largest relative error is ", census.worst));
    return;
  }
  in.tight = true;
  const std::vector<Difference> chained = std::move(in.differences);
  in.differences = std::move(census.layers);
  in.row_differences = std::move(census.rows);
  if (census.of_f32()) {
    in.add_check(name, Outcome::failed,
                 cat(share_text(static_cast<double>(census.exact) / static_cast<double>(census.vectors)),
                     " of all vectors are right to f32, others are off by up to ", census.worst));
    return;
  }
  if (explained(in)) {
    in.add_check(name, Outcome::failed, cat("errors of up to ", census.worst, " are no rounding"));
    return;
  }
  in.tight = false;
  in.differences = chained;
  in.row_differences.clear();
  in.add_check(name, Outcome::passed,
               cat("relative errors of up to ", census.worst,
                   ", as coarser arithmetic leaves them; no known mistake "
                   "explains them"));
}

}  // namespace kvtide
