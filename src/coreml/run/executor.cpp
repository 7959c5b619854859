#include "coreml/run/executor.h"

#include <algorithm>
#include <cstring>

#include "base/stopwatch.h"
#include "base/text.h"
#include "coreml/run/journal.h"
#include "coreml/run/operations.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

void never_called(Call& call) { call.refuse("no state"); }

bool share_bytes(const Tensor& a, const Tensor& b) {
  return !a.data.owner_before(b.data) && !b.data.owner_before(a.data);
}

}  // namespace

OperationRows state_operations() {
  return {operation("read_state", {"input"}, never_called),
          operation("write_state", {"input", "data"}, never_called)};
}

std::vector<Tensor> Executor::run(std::span<const Tensor> inputs, std::span<Tensor* const> states,
                                  const std::function<bool()>& go_on,
                                  const std::function<void(std::span<const Tensor>)>& keep) {
  const Stopwatch watch;
  Journal journal;
  try {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      plan_.slots[static_cast<std::size_t>(plan_.inputs[i].slot)].tensor = inputs[i];
    run_steps(states, journal, go_on);
    std::vector<Tensor> outputs = take_outputs(inputs, states);
    if (keep) keep(outputs);
    clear();
    ++report_.calls;
    report_.seconds += watch.seconds();
    return outputs;
  } catch (...) {
    clear();
    journal.undo();
    throw;
  }
}

void Executor::run_steps(std::span<Tensor* const> states, Journal& journal,
                         const std::function<bool()>& go_on) {
  for (const Step& step : plan_.steps) {
    if (go_on && !go_on())
      throw Error(ErrorCode::cancelled, cat("the call of ", plan_.function, " was cancelled"));
    run_step(step, states, journal);
    for (const int number : step.releases) plan_.slots[static_cast<std::size_t>(number)].tensor = {};
  }
}

void Executor::run_step(const Step& step, std::span<Tensor* const> states, Journal& journal) {
  Call call(run_, step, plan_.slots, nullptr);
  if (step.state == kAbsent) {
    if (step.onto != kAbsent || step.row->type == "slice_update") return update_slice(call, states, journal);
    return step.row->run(call);
  }
  Tensor& state = *states[static_cast<std::size_t>(step.state)];
  if (!step.outputs.empty()) return call.give(state);  // read_state
  const Tensor& data = call.in(1);
  if (data.shape != state.shape || data.dtype != state.dtype)
    call.refuse(cat("data of shape ", text_of(data.shape), " for a state of ", text_of(state.shape)));
  if (data.data == state.data) return;  // it was written where it lies
  journal.save_whole(state);
  state = data;
  if (call.slot(1).constant) {  // which the program's bytes are: nobody writes there
    state = run_.tensors.take(data.dtype, data.shape);
    std::memcpy(state.data.get(), data.data.get(), data.bytes());
  }
}

void Executor::update_slice(Call& call, std::span<Tensor* const> states, Journal& journal) {
  const Step& step = call.step;
  const Slot& slot = call.slot(0);
  const bool last = !slot.constant && std::find(step.releases.begin(), step.releases.end(),
                                                step.arguments[0][0]) != step.releases.end();
  bool of_state = false;
  for (Tensor* const state : states) of_state |= share_bytes(*state, slot.tensor);
  if (step.onto != kAbsent && last) {
    const Tensor& state = *states[static_cast<std::size_t>(step.onto)];
    if (state.data == slot.tensor.data && state.data.use_count() == 2) {
      call.in_place = true;
      call.journal = &journal;
    }
  }
  if (!of_state && last && slot.tensor.sole_owner()) call.in_place = true;
  if (of_state && !call.in_place)
    report_.state_bytes_copied += static_cast<std::int64_t>(slot.tensor.bytes());
  step.row->run(call);
}

void Executor::clear() {
  for (Slot& slot : plan_.slots)
    if (!slot.constant) slot.tensor = {};
}

std::vector<Tensor> Executor::take_outputs(std::span<const Tensor> inputs, std::span<Tensor* const> states) {
  std::vector<Tensor> outputs;
  for (const PlannedOutput& output : plan_.outputs) {
    const Slot& slot = plan_.slots[static_cast<std::size_t>(output.slot)];
    Tensor tensor = slot.tensor;
    bool shared = slot.constant;
    for (const Tensor& input : inputs) shared |= share_bytes(input, tensor);
    for (const Tensor* state : states) shared |= share_bytes(*state, tensor);
    for (const Tensor& other : outputs) shared |= share_bytes(other, tensor);
    if (shared) {
      Tensor copy = run_.tensors.take(tensor.dtype, tensor.shape);
      std::memcpy(copy.data.get(), tensor.data.get(), tensor.bytes());
      tensor = std::move(copy);
    }
    outputs.push_back(std::move(tensor));
  }
  return outputs;
}

}  // namespace kvtide::coreml
