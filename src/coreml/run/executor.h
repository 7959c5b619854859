// executor.h: runs a plan: inputs in, outputs out, states changed.
//
// States are tensors that the caller owns and lends for a call, in the order of the plan's. read_state gives what a state holds at
// that moment: later writes do not change it. Memory is shared until somebody writes, and a slice that nobody else can see any
// more is written in place.
// Errors: an operation that does not fit its values throws; the states are then as they were before the call.
// Thread rules: one call at a time for each executor, and for each state.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "coreml/run/plan.h"

namespace kvtide::coreml {

// What calls have cost since the last reset.
struct CallReport {
  std::int64_t calls = 0;
  double seconds = 0.0;
  std::int64_t state_bytes_copied =
      0;  // states that were copied because a value before the write was needed behind it
};

class Executor {
 public:
  Executor(Runtime& run, Plan plan) : run_(run), plan_(std::move(plan)) {}

  const Plan& plan() const { return plan_; }
  const CallReport& report() const { return report_; }
  void reset_report() { report_ = {}; }

  // inputs: as the plan's, owned by nobody else who writes. Returns the outputs, which share nothing with states and inputs.
  // go_on: asked before every step; false: Error(cancelled). keep: takes the outputs while the states can still go back, so that
  // a caller without memory for them has changed nothing. Either may be empty.
  std::vector<Tensor> run(std::span<const Tensor> inputs, std::span<Tensor* const> states,
                          const std::function<bool()>& go_on = {},
                          const std::function<void(std::span<const Tensor>)>& keep = {});

 private:
  void run_steps(std::span<Tensor* const> states, Journal& journal, const std::function<bool()>& go_on);
  void run_step(const Step& step, std::span<Tensor* const> states, Journal& journal);
  void update_slice(Call& call, std::span<Tensor* const> states, Journal& journal);
  void clear();
  std::vector<Tensor> take_outputs(std::span<const Tensor> inputs, std::span<Tensor* const> states);

  Runtime& run_;
  Plan plan_;
  CallReport report_;
};

}  // namespace kvtide::coreml
