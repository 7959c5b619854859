// scheduler.h: many answers at once: one thread steps the models, and in a step every running answer takes part.
//
// Answers join and leave between steps. A long prompt is read in chunks between the steps of those that write. The bits of
// an answer are those that it would have alone, whatever its neighbours are and whatever the prefix cache spared.
// Ownership: owns the sessions, the prefix caches and the thread; refers to the models, which must outlive it.
// Thread rules: submit, between_steps, counts and drain from any thread. Without start(), step() by one caller.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/stopwatch.h"
#include "kvtide/model.h"
#include "serve/work/answer.h"
#include "serve/work/disk_cache.h"
#include "serve/work/lane.h"

namespace kvtide::serve {

// Counters of everything since the start, and gauges of this moment.
struct Counts {
  std::int64_t waiting = 0, running = 0;
  std::int64_t kv_bytes = 0, kv_budget = 0;
  std::int64_t cached_states = 0;
  std::int64_t requests = 0, refused = 0, cancelled = 0, failed = 0;
  std::int64_t prompt_tokens = 0, cached_tokens = 0, written_tokens = 0;
  std::int64_t steps = 0, evicted = 0;
  double reading_seconds = 0, writing_seconds = 0;
  std::int64_t drift_tokens = 0;  // as Lane::DriftSums
  double drift_output_error = 0;
};

// Why a request is not even queued.
struct Busy {
  std::string reason;
  int retry_after = 1;  // seconds
};

class Scheduler {
 public:
  // Throws Error: invalid_argument, out_of_memory.
  Scheduler(const std::vector<const Model*>& models, const WorkOptions& options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Hands an answer over. nullopt: it is queued, and the listener hears of it. Throws Error(context_full) for one that
  // can never fit, Error(invalid_argument) for a sampler out of range.
  std::optional<Busy> submit(std::size_t model, AnswerSpec spec, std::shared_ptr<AnswerListener> listener);
  // Runs `action` on the scheduler's thread, before the next step, and waits for it.
  void between_steps(const std::function<void(std::vector<Lane>&)>& action);

  // Takes a state into a prefix cache; apart: whatever else is there, for requests that name it. Returns its number in
  // that cache. Throws Error(context_full) when the budget has no room for it.
  std::int64_t keep(std::size_t model, State state, const std::string& key, bool apart = false);

  // One step of everything that is due. False: there was nothing to do.
  bool step();
  void start();  // a thread that steps while there is work
  // Answers end, nothing new begins; false when some still run after so many seconds, which are then cancelled.
  bool drain(double seconds);

  void cancel();  // gives up all answers
  void stop();    // ends the thread, and what still runs; every listener has heard of it then

  Counts counts() const;
  const WorkOptions& options() const { return options_; }
  // Tokens that an answer may have behind a prompt of so many, when it asks for none.
  std::int64_t tokens_by_default(std::size_t model, const AnswerSpec& spec) const;

 private:
  struct Waiting {
    std::size_t model;
    AnswerSpec spec;
    std::shared_ptr<const State> shape;  // Lane::shape_of(spec)
    std::shared_ptr<AnswerListener> listener;
    Stopwatch since;
    bool looked = false;             // on the disk
    std::shared_ptr<DiskRead> disk;  // what it waits for
  };

  void run();
  bool step_once();
  bool go_without();
  void do_actions();
  void admit();
  std::optional<std::size_t> next_to_admit();
  bool admit_one(Waiting& waiting);
  bool make_room(std::int64_t bytes);
  bool waits_for_disk(Waiting& waiting);
  bool disk_works() const;
  std::int64_t reserved_bytes() const;
  std::int64_t held_bytes() const;
  std::int64_t planned_bytes() const;  // that all answers will have come to hold when they end
  void forget_gone();
  void publish();
  void cancel_all(const char* why);

  WorkOptions options_;
  std::vector<Lane> lanes_;

  mutable std::mutex mutex_;
  std::condition_variable changed_, idle_;
  std::deque<Waiting> arrived_;                                    // under mutex_
  std::deque<std::function<void()>> actions_;                      // under mutex_
  Counts published_;                                               // under mutex_
  bool stopping_ = false, draining_ = false, cancelling_ = false;  // under mutex_

  std::deque<Waiting> queue_;    // the thread's own, like lanes_
  std::int64_t left_queue_ = 0;  // requests since the last publish()
  int starved_ = 0;              // steps, one behind another, for which memory ended
  std::atomic<std::int64_t> waiting_{0};
  std::atomic<std::int64_t> requests_{0}, refused_{0};
  Counts own_;
  std::size_t at_work_ = 0;  // answers behind the last step
  std::thread thread_;
};

}  // namespace kvtide::serve
