#include "tests/base/interleavings.h"

#include <utility>

namespace kvtide {

Interleavings::Outcome Interleavings::explore(const Program& program, std::optional<int> preemptions,
                                              std::int64_t most_orders) {
  bound_ = preemptions;
  random_.reset();
  decisions_.clear();
  Outcome outcome;
  do {
    if (outcome.orders == most_orders) return outcome;
    run(program);
    ++outcome.orders;
    outcome.failure = failure_;
  } while (failure_.empty() && next_order());
  outcome.complete = failure_.empty();
  return outcome;
}

Interleavings::Outcome Interleavings::sample(const Program& program, std::uint64_t seed,
                                             std::int64_t orders) {
  bound_.reset();
  random_.emplace(seed);
  Outcome outcome;
  while (outcome.orders < orders && outcome.failure.empty()) {
    run(program);
    ++outcome.orders;
    outcome.failure = failure_;
  }
  return outcome;
}

// The last decision that has another choice takes it, and what came after it is open again.
bool Interleavings::next_order() {
  while (!decisions_.empty() && decisions_.back().taken + 1 == decisions_.back().choices)
    decisions_.pop_back();
  if (decisions_.empty()) return false;
  ++decisions_.back().taken;
  return true;
}

void Interleavings::run(const Program& program) {
  running_ = this;
  functions_.clear();
  made_ = 0;
  preemptions_ = 0;
  failure_.clear();
  trace_.clear();
  current_ = 0;
  spawn([this, &program] { program(*this); });
  swapcontext(&outside_, &functions_[0]->context);
  running_ = nullptr;
}

int Interleavings::spawn(std::function<void()> body) {
  const std::size_t index = functions_.size();
  if (stacks_.size() == index) stacks_.push_back(std::make_unique<char[]>(kStack));
  auto& function = *functions_.emplace_back(std::make_unique<Function>());
  function.body = std::move(body);
  getcontext(&function.context);
  function.context.uc_stack.ss_sp = stacks_[index].get();
  function.context.uc_stack.ss_size = kStack;
  function.context.uc_link = &outside_;
  makecontext(&function.context, &Interleavings::enter, 0);
  return static_cast<int>(index);
}

void Interleavings::enter() {
  Interleavings& own = *running_;
  const std::size_t index = own.current_;
  own.functions_[index]->body();
  own.functions_[index]->state = State::ended;
  if (index == 0) {
    for (const auto& function : own.functions_)
      if (function->state != State::ended) own.fail("the program returned before a function had ended");
    swapcontext(&own.functions_[0]->context, &own.outside_);
  }
  own.go_on();
}

void Interleavings::join(int function) {
  step("join");
  functions_[current_]->state = State::joining;
  functions_[current_]->joined = function;
  go_on();
}

void Interleavings::step(const char* operation) {
  go_on();
  trace_.emplace_back(current_, operation);
}

void Interleavings::sleep_on(const void* address) {
  functions_[current_]->state = State::asleep;
  functions_[current_]->address = address;
  go_on();
}

void Interleavings::wake(const void* address, bool everyone) {
  for (const auto& function : functions_) {
    if (function->state != State::asleep || function->address != address) continue;
    function->state = State::ready;
    if (!everyone) return;
  }
}

void Interleavings::expect(bool holds, const std::string& what) {
  if (!holds) fail(what);
}

bool Interleavings::able(const Function& function) const {
  if (function.state == State::joining)
    return functions_[static_cast<std::size_t>(function.joined)]->state == State::ended;
  return function.state == State::ready;
}

// Decides who goes on, and lets it.
void Interleavings::go_on() {
  std::vector<std::size_t> choices;
  const bool could = able(*functions_[current_]);
  if (could) choices.push_back(current_);
  if (!could || !bound_ || preemptions_ < *bound_)
    for (std::size_t i = 0; i < functions_.size(); ++i)
      if (i != current_ && able(*functions_[i])) choices.push_back(i);
  if (choices.empty()) fail("nobody can go on: a wake-up was lost");
  const std::size_t next = choices[static_cast<std::size_t>(choose(static_cast<int>(choices.size())))];
  if (could && next != current_) ++preemptions_;
  functions_[next]->state = State::ready;
  if (next == current_) return;
  const std::size_t left = std::exchange(current_, next);
  swapcontext(&functions_[left]->context, &functions_[next]->context);
}

int Interleavings::choose(int choices) {
  if (random_) return static_cast<int>((*random_)() % static_cast<std::uint64_t>(choices));
  if (choices == 1) return 0;
  if (made_ == decisions_.size()) decisions_.push_back({0, choices});
  return decisions_[made_++].taken;
}

// Leaves all functions where they stand: what they hold is lost with the test, which has failed.
void Interleavings::fail(const std::string& what) {
  failure_ = what + "; the steps were:";
  for (const auto& [function, operation] : trace_)
    failure_ += " " + std::to_string(function) + ":" + operation;
  setcontext(&outside_);
}

}  // namespace kvtide
