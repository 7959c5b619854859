// interleavings.h: runs functions as if each were a thread, in many or all orders of their steps.
//
// The functions run one at a time in this thread, each on a stack of its own. Before every step (an operation
// on a StepAtomic) it is decided which function goes on. explore() tries every decision, depth first, or only
// orders with at most so many preemptions: a preemption leaves a function that could have gone on. sample()
// decides at random. Both end at the first order in which an expectation fails or in which nobody can go on,
// and name its steps. Memory is sequentially consistent here; weaker orders are ThreadSanitizer's business.
#pragma once

#include <ucontext.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace kvtide {

class Interleavings {
 public:
  // Called afresh for every order: makes its objects, spawns functions, joins them, states what it expects.
  using Program = std::function<void(Interleavings&)>;

  struct Outcome {
    std::int64_t orders = 0;
    bool complete = false;  // every order within the bound was tried
    std::string failure;    // empty: none
  };

  Outcome explore(const Program& program, std::optional<int> preemptions, std::int64_t most_orders);
  Outcome sample(const Program& program, std::uint64_t seed, std::int64_t orders);

  // For programs. A function that is spawned must be joined before the program returns.
  int spawn(std::function<void()> body);
  void join(int function);
  void expect(bool holds, const std::string& what);

  // For StepAtomic: the one that runs.
  static Interleavings& running() { return *running_; }
  void step(const char* operation);
  void sleep_on(const void* address);
  void wake(const void* address, bool everyone);

 private:
  static constexpr std::size_t kStack = 128 * 1024;
  enum class State { ready, asleep, joining, ended };
  struct Function {
    std::function<void()> body;
    State state = State::ready;
    const void* address = nullptr;  // that it sleeps on
    int joined = -1;                // whose end it waits for
    ucontext_t context{};
  };
  struct Decision {
    int taken, choices;
  };

  void run(const Program& program);
  void go_on();
  int choose(int choices);
  void fail(const std::string& what);
  bool able(const Function& function) const;
  bool next_order();
  static void enter();

  static inline Interleavings* running_ = nullptr;
  std::vector<std::unique_ptr<Function>> functions_;  // the first is the program itself
  std::vector<std::unique_ptr<char[]>> stacks_;       // kept from order to order
  std::size_t current_ = 0;
  ucontext_t outside_{};
  std::vector<Decision> decisions_;
  std::size_t made_ = 0;  // decisions of this order
  int preemptions_ = 0;
  std::optional<int> bound_;
  std::optional<std::mt19937_64> random_;  // instead of decisions_
  std::string failure_;
  std::vector<std::pair<std::size_t, const char*>> trace_;  // function and operation
};

// An atomic each of whose operations is a step.
template <class T>
class StepAtomic {
 public:
  StepAtomic(T value) : value_(value) {}  // NOLINT: as std::atomic
  T load(std::memory_order) const { return at("load"); }
  void store(T value, std::memory_order = std::memory_order_seq_cst) { at("store") = value; }
  T exchange(T value, std::memory_order) { return std::exchange(at("exchange"), value); }
  T fetch_sub(T value, std::memory_order) {
    T& own = at("fetch_sub");
    return std::exchange(own, static_cast<T>(own - value));
  }
  bool compare_exchange_weak(T& expected, T wanted, std::memory_order, std::memory_order) {
    T& own = at("compare_exchange");
    if (own != expected) {
      expected = own;
      return false;
    }
    own = wanted;
    return true;
  }
  void wait(T old, std::memory_order = std::memory_order_seq_cst) const {
    while (at("wait") == old) Interleavings::running().sleep_on(this);
  }
  void notify_all() { at("notify_all"), Interleavings::running().wake(this, true); }
  void notify_one() { at("notify_one"), Interleavings::running().wake(this, false); }

 private:
  T& at(const char* operation) const {
    Interleavings::running().step(operation);
    return value_;
  }
  mutable T value_;
};

}  // namespace kvtide
