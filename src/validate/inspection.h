// inspection.h: one validation while it goes on: what was asked, what was read, what differs so far.
//
// Every check is a function over it: it measures, adds figures and a CheckResult to the report, and leaves
// what differs for those that look for causes.
// Ownership: refers to the model and the reference.
// Thread rules: one caller at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvtide/validate.h"
#include "validate/measure.h"
#include "validate/mistakes.h"
#include "validate/router_ties.h"
#include "validate/runs.h"

namespace kvtide {

inline constexpr const char* kCausal =
    "In a call that begins at position n, column t sees no slot behind slot n + t: the mask is a triangle, "
    "not a "
    "rectangle.";

inline constexpr const char* kPastIsGone =
    "Either the mask hides the past (it must be as long as all that is active) or the state does not keep it "
    "(one state for all calls): rows() would tell which.";

// What changes by less than this does so because work is shared out otherwise, as in a batched mixture of
// experts; an earlier token that changes by more depends on a later one.
inline constexpr double kDependence = 2e-5;

// The relative error that f32 arithmetic leaves at most; correct ports stay a hundred times below.
inline constexpr double kF32 = 1e-4;

// A layer's result for one token that is not what it should be.
struct Difference {
  std::size_t schedule = 0;
  bool isolated = false;
  int layer = -1;  // -1: the embedding
  Pos token = 0;
  double cosine = 0.0;
};

struct Inspection {
  TestedModel& model;
  Reference& reference;
  const ValidateOptions& options;
  TestedShape shape;
  Golden golden;
  std::span<const TokenId> tokens;
  ValidationReport& report;
  std::function<void(double, std::string_view)> step;  // progress

  std::vector<Schedule> schedules = {};
  std::vector<Run> isolated = {},
                   chained = {};             // one per schedule; isolated: empty when layers cannot be fed
  std::vector<Course> courses = {};          // of the chained runs: what they are compared with
  std::vector<Difference> differences = {};  // of layers
  std::vector<Difference> row_differences = {};
  std::optional<std::vector<Fit>> model_fits = {};  // of logits: asked for more than once, and costly
  bool tight = false;                               // the model is held to what f32 arithmetic leaves
  std::vector<char> set_apart = {};                 // per token
  std::set<std::pair<int, Pos>> ties = {};          // layers and tokens where a router took the other expert

  int layers() const { return static_cast<int>(shape.layers.size()); }
  bool judges_layers() const { return shape.gives_hidden && !golden.hidden.empty(); }
  bool isolates() const { return judges_layers() && shape.isolates; }
  bool judges_rows() const { return shape.gives_rows && !golden.rows.empty(); }
  double gate_of(Pos token) const {
    return set_apart[static_cast<std::size_t>(token)] ? options.apart_gate : options.gate;
  }
  // What a run is compared with.
  const Golden& wanted(std::size_t schedule, bool of_isolated) const {
    return of_isolated ? golden : *courses[schedule].golden;
  }
  void add_check(std::string name, Outcome outcome, std::string detail) {
    report.checks.push_back({std::move(name), outcome, std::move(detail)});
  }
};

// coverage.cpp: whether the same calls give the same numbers; what the text and the calls reached.
void check_read_twice(Inspection& in);
void note_coverage(Inspection& in);
// layer_checks.cpp: runs every schedule; layers, sums, logits, and one schedule against another.
void check_layers(Inspection& in);
// precision_check.cpp: whether errors that the gate lets pass are those of coarser arithmetic.
void check_precision(Inspection& in);
// row_checks.cpp: the rows of the state against the reference's.
void check_rows(Inspection& in);
// state_checks.cpp: rows that are no part of the text, taking back, copies, other sequences.
void check_state(Inspection& in);
// capacity_check.cpp: a full memory.
void check_capacity(Inspection& in);
// longer_text.cpp: the text of options.length tokens, and what reading it adds to the report on the first.
std::vector<TokenId> lengthened(std::span<const TokenId> tokens, std::int64_t length);
void add_longer(ValidationReport& report, ValidationReport longer);
// What those two tell; where: the layer, if one is known, and the token.
Finding state_finding(std::string cause, std::string check, const std::pair<std::optional<int>, Pos>& where,
                      std::string what, std::string advice);
// Of the text, before greedy tokens: longer texts were compared by then.
inline constexpr std::size_t kFreePrompt = 16;
// free_run.cpp: greedy decoding.
void check_free_run(Inspection& in);

// Evidence: adds findings. Each says whether it found a cause.
bool explain_rows(Inspection& in);        // evidence_rows.cpp
bool explain_rotation(Inspection& in);    // evidence_rotation.cpp
bool explain_sight(Inspection& in);       // evidence_sight.cpp
bool explain_rope_width(Inspection& in);  // evidence_rows.cpp
bool explain_numbers(Inspection& in);     // evidence_numbers.cpp
bool explain_outputs(Inspection& in);     // evidence_outputs.cpp

// "layer 3", "layers 3 and 5", "all 12 layers"; "calls of 2, 3 and 4".
std::string layers_text(const std::vector<int>& layers, int all);
std::string list_text(const std::vector<std::string>& items);
// How the calls that are wrong differ from those that are right: "calls of 2 and 4 are wrong, calls of 1
// right".
std::string calls_text(const Inspection& in, const std::vector<std::size_t>& wrong);
std::string cosine_text(double cosine);
std::string share_text(double share);  // 0.9987 as "99.9%"

}  // namespace kvtide
