#include "serve/work/scheduler.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <utility>

#include "base/text.h"
#include "serve/work/if_memory_allows.h"

namespace kvtide::serve {
namespace scheduler {

// While every answer waits for its client, they are looked at again so often.
constexpr std::chrono::milliseconds kLookAgain{10};
// Steps, one behind another, for which memory ended, before an answer is given up.
constexpr int kMostTries = 8;

void check(const WorkOptions& o) {
  const auto need = [](bool fine, const std::string& why) {
    if (!fine) throw Error(ErrorCode::invalid_argument, why);
  };
  need(o.kv_budget > 0, "the KV budget must be more than 0 bytes");
  need(o.parallel >= 1 && o.parallel <= 256, "answers in parallel must be from 1 to 256");
  need(o.queue >= 0, "the queue must hold 0 requests or more");
  need(o.step >= 1 && o.step_beside >= 1, "a step must read at least 1 token");
}

}  // namespace scheduler

Scheduler::Scheduler(const std::vector<const Model*>& models, const WorkOptions& options)
    : options_(options) {
  scheduler::check(options_);
  lanes_.reserve(models.size());
  for (const Model* model : models) lanes_.emplace_back(*model, options_);
  publish();
}

Scheduler::~Scheduler() { stop(); }

void Scheduler::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  cancel_all("the server has stopped");
}

std::int64_t Scheduler::tokens_by_default(std::size_t model, const AnswerSpec& spec) const {
  const auto prompt = static_cast<std::int64_t>(spec.prompt.size());
  if (!spec.memory.keeps_all() || spec.from) return options_.max_tokens;
  return std::max<std::int64_t>(1, std::min(options_.max_tokens, lanes_[model].context() - prompt));
}

std::optional<Busy> Scheduler::submit(std::size_t model, AnswerSpec spec,
                                      std::shared_ptr<AnswerListener> listener) {
  const Lane& lane = lanes_[model];
  const auto prompt = static_cast<std::int64_t>(spec.prompt.size());
  if (spec.prompt.empty()) throw Error(ErrorCode::invalid_argument, "the prompt holds no tokens");
  if (spec.max_tokens < 0) spec.max_tokens = tokens_by_default(model, spec);
  std::shared_ptr<const State> shape = lane.shape_of(spec);
  if (!shape->shape().rolling && !shape->budget()) {
    if (prompt + std::min<std::int64_t>(spec.max_tokens, 1) > lane.context())
      throw Error(ErrorCode::context_full,
                  cat("the prompt has ", prompt, " tokens, and the context holds ", lane.context(),
                      "; use a shorter text, or a memory that forgets or summarises: kv"));
    spec.max_tokens = std::min(spec.max_tokens, lane.context() - prompt);
  }
  static_cast<void>(Sampler(spec.sampler));
  const std::int64_t needs = lane.growth(spec, *shape, spec.max_tokens, 0);
  if (needs > options_.kv_budget)
    throw Error(ErrorCode::context_full,
                cat("the answer needs up to ", needs, " bytes of KV memory and the server's budget is ",
                    options_.kv_budget, "; ask for fewer tokens or choices"));
  {
    const std::lock_guard lock(mutex_);
    if (draining_ || stopping_) {
      ++refused_;
      return Busy{"the server is about to stop", 10};
    }
    if (waiting_ >= options_.queue + (published_.running < options_.parallel ? 1 : 0)) {
      ++refused_;
      return Busy{cat("all ", options_.parallel, " places are taken or the KV budget is, and ",
                      options_.queue, " requests wait already"),
                  2};
    }
    arrived_.push_back({model, std::move(spec), std::move(shape), std::move(listener), {}, false, {}});
    ++waiting_;
    ++requests_;
  }
  changed_.notify_all();
  return std::nullopt;
}

void Scheduler::between_steps(const std::function<void(std::vector<Lane>&)>& action) {
  if (!thread_.joinable()) return action(lanes_);
  std::exception_ptr error;
  bool done = false;
  std::condition_variable ready;
  std::unique_lock lock(mutex_);
  if (stopping_) throw Error(ErrorCode::cancelled, "the server is about to stop");
  actions_.push_back([&] {
    try {
      action(lanes_);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard inner(mutex_);
    done = true;
    ready.notify_all();
  });
  changed_.notify_all();
  ready.wait(lock, [&] { return done; });
  if (error) std::rethrow_exception(error);
}

// Without memory of its own: an action that is lost would be waited for.
void Scheduler::do_actions() {
  std::unique_lock lock(mutex_);
  for (std::size_t left = actions_.size(); left > 0; --left) {
    const std::function<void()> action = std::move(actions_.front());
    actions_.pop_front();
    lock.unlock();
    action();
    lock.lock();
  }
  for (; !arrived_.empty(); arrived_.pop_front()) queue_.push_back(std::move(arrived_.front()));
}

// Of those that wait, one whose key has fewest at work; among these the first that came.
std::optional<std::size_t> Scheduler::next_to_admit() {
  std::map<std::string, int> at_work;
  for (const Lane& lane : lanes_)
    for (const Running& running : lane.running()) ++at_work[running.spec.key];
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    if (queue_[i].disk && !queue_[i].disk->done) continue;
    if (lanes_[queue_[i].model].is_being_read(queue_[i].spec, *queue_[i].shape)) continue;
    if (!best || at_work[queue_[i].spec.key] < at_work[queue_[*best].spec.key]) best = i;
  }
  return best;
}

std::int64_t Scheduler::planned_bytes() const {
  std::int64_t planned = held_bytes();
  for (const Lane& lane : lanes_)
    for (const Running& running : lane.running()) planned += lane.growth_left(running);
  return planned;
}

bool Scheduler::make_room(std::int64_t bytes) {
  while (planned_bytes() + bytes > options_.kv_budget) {
    const auto fullest = std::max_element(lanes_.begin(), lanes_.end(), [](const Lane& a, const Lane& b) {
      return a.cache().entries().size() < b.cache().entries().size();
    });
    if (!fullest->cache().evict()) return false;
    ++own_.evicted;
  }
  return true;
}

std::int64_t Scheduler::keep(std::size_t model, State state, const std::string& key, bool apart) {
  std::int64_t id = 0;
  between_steps([&](std::vector<Lane>& lanes) {
    StateBytes bytes;
    bytes.add(state);
    if (!make_room(bytes.total()))
      throw Error(ErrorCode::context_full,
                  cat("the state takes ", bytes.total(), " bytes, which the KV budget of ",
                      options_.kv_budget, " has no room for now"));
    PrefixCache& cache = lanes[model].cache();
    const bool by_number = !is_unedited(state) || state.attention_size().has_value();
    id = (apart || by_number ? cache.keep_apart(std::move(state), key, by_number)
                             : cache.keep(std::move(state), key))
             .id;
  });
  return id;
}

// False: there is no room for it yet.
bool Scheduler::admit_one(Waiting& waiting) {
  Lane& lane = lanes_[waiting.model];
  const std::int64_t max_tokens = waiting.spec.max_tokens;
  const PrefixCache::Hit hit = lane.known_of(waiting.spec, *waiting.shape);
  const std::int64_t known = waiting.spec.from ? waiting.spec.from->state.position() : hit.length;
  const std::int64_t id = hit.entry == nullptr ? 0 : hit.entry->id;
  // Making room must not take away what it would go on from, unless nothing else is left.
  std::optional<State> held;
  if (hit.length > 0) held = lane.cache().fork(hit);
  if (!make_room(lane.growth(waiting.spec, *waiting.shape, max_tokens, known))) {
    const bool idle =
        std::all_of(lanes_.begin(), lanes_.end(), [](const Lane& l) { return l.running().empty(); });
    if (!idle || disk_works()) return false;
    held.reset();
    if (!make_room(lane.growth(waiting.spec, *waiting.shape, max_tokens, known)))
      throw Error(
          ErrorCode::context_full,
          "the states that are kept leave no room in the KV budget; drop some, or ask for fewer tokens");
  }
  if (held && lane.cache().at(id) == nullptr) lane.cache().keep(std::move(*held), waiting.spec.key);
  held.reset();
  Running& running =
      lane.begin(std::move(waiting.spec), std::move(waiting.shape), waiting.listener, max_tokens);
  running.figures.queued_ms = waiting.since.ms();
  own_.prompt_tokens += running.figures.prompt_tokens;
  own_.cached_tokens += running.figures.cached_tokens;
  running.guard([&] { running.listener->begun(running.figures); });
  return true;
}

void Scheduler::admit() {
  std::size_t at_work = 0;
  for (const Lane& lane : lanes_) at_work += lane.running().size();
  while (at_work < static_cast<std::size_t>(options_.parallel) && !queue_.empty()) {
    const std::optional<std::size_t> next = next_to_admit();
    if (!next) return;
    Waiting& waiting = queue_[*next];
    try {
      if (waits_for_disk(waiting)) continue;
      if (!admit_one(waiting)) return;
      ++at_work;
    } catch (const Error& error) {
      ++own_.failed;
      tell_failure(*waiting.listener, error);
    } catch (const std::bad_alloc&) {
      ++own_.failed;
      tell_failure(*waiting.listener, Error(ErrorCode::out_of_memory, "out of memory"));
    }
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(*next));
    ++left_queue_;
  }
}

void Scheduler::forget_gone() {
  const auto gone = [&](const Waiting& waiting) {
    if (!waiting.listener->gone()) return false;
    ++own_.cancelled;
    ++left_queue_;
    return true;
  };
  std::erase_if(queue_, gone);
}

bool Scheduler::step() {
  try {
    const bool worked = step_once();
    starved_ = 0;
    return worked;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
  } catch (const std::bad_alloc&) {
  }
  return go_without();
}

// Memory ended in a step that has changed nothing: it is made again, then with less in the caches, then without the answer
// that came last.
bool Scheduler::go_without() {
  if (++starved_ == 1) return true;
  if (starved_ > scheduler::kMostTries) {
    for (Lane& lane : lanes_)
      if (!lane.running().empty()) {
        lane.running().back().error.emplace(ErrorCode::out_of_memory, "out of memory");
        starved_ = 0;
        return true;
      }
    cancel_all("out of memory");
    return false;
  }
  try {
    for (Lane& lane : lanes_) own_.evicted += lane.cache().evict() ? 1 : 0;
  } catch (const std::bad_alloc&) {
  }
  return true;
}

bool Scheduler::step_once() {
  do_actions();
  forget_gone();
  for (Lane& lane : lanes_) own_.cancelled += lane.finish();
  admit();
  bool worked = false;
  const std::size_t before = at_work_;
  at_work_ = 0;
  for (Lane& lane : lanes_) {
    const Stopwatch watch;
    const Lane::Done done = lane.step();
    own_.cancelled += lane.finish();
    at_work_ += lane.running().size();
    if (!done.worked) continue;
    worked = true;
    ++own_.steps;
    own_.written_tokens += done.written;
    (done.read > 0 ? own_.reading_seconds : own_.writing_seconds) += watch.seconds();
  }
  // Adding up all states takes as long as a step of a small model.
  if (at_work_ != before || own_.steps % 32 == 0 || !worked)
    if_memory_allows([&] { own_.kv_bytes = held_bytes(); });
  publish();
  return worked;
}

std::int64_t Scheduler::held_bytes() const {
  StateBytes held;
  for (const Lane& lane : lanes_) lane.add_to(held);
  for (const Waiting& waiting : queue_)
    if (waiting.spec.from) held.add(waiting.spec.from->state);
  if (options_.disk != nullptr) options_.disk->add_to(held);
  return held.total() + reserved_bytes();
}

void Scheduler::publish() {
  Counts now = own_;
  for (const Lane& lane : lanes_) {
    now.running += static_cast<std::int64_t>(lane.running().size());
    now.cached_states += static_cast<std::int64_t>(lane.cache().entries().size());
    now.drift_tokens += lane.drift().tokens;
    now.drift_output_error += lane.drift().output_error;
  }
  now.kv_budget = options_.kv_budget;
  const std::lock_guard lock(mutex_);
  waiting_ -= std::exchange(left_queue_, 0);  // at once with what runs: drain() looks at both
  published_ = now;
  if (now.running == 0 && queue_.empty() && arrived_.empty()) idle_.notify_all();
}

Counts Scheduler::counts() const {
  const std::lock_guard lock(mutex_);
  Counts out = published_;
  out.waiting = waiting_;
  out.requests = requests_;
  out.refused = refused_;
  return out;
}

void Scheduler::start() {
  thread_ = std::thread([this] { run(); });
}

void Scheduler::run() {
  for (;;) {
    bool worked = false;
    try {
      worked = step();
    } catch (const Error& error) {
      cancel_all(error.what());
    }
    std::unique_lock lock(mutex_);
    if (cancelling_) {
      cancelling_ = false;
      lock.unlock();
      cancel_all("the server has stopped");
      lock.lock();
    }
    if (stopping_) break;
    const auto is_due = [&] { return stopping_ || cancelling_ || !arrived_.empty() || !actions_.empty(); };
    if (worked) continue;
    if (published_.running > 0 || !queue_.empty())
      changed_.wait_for(lock, scheduler::kLookAgain, is_due);
    else
      changed_.wait(lock, is_due);
  }
  do_actions();  // somebody may wait for one
}

void Scheduler::cancel_all(const char* why) {
  const Error error(ErrorCode::cancelled, why);
  for (Lane& lane : lanes_) {
    for (Running& running : lane.running()) running.error = error;
    lane.finish();
  }
  for (const Waiting& waiting : queue_) tell_failure(*waiting.listener, error);
  left_queue_ += static_cast<std::int64_t>(queue_.size());
  queue_.clear();
  std::unique_lock lock(mutex_);
  while (!arrived_.empty()) {
    const std::shared_ptr<AnswerListener> listener = std::move(arrived_.front().listener);
    arrived_.pop_front();
    ++left_queue_;
    lock.unlock();
    tell_failure(*listener, error);
    lock.lock();
  }
  lock.unlock();
  publish();
}

void Scheduler::cancel() {
  {
    const std::lock_guard lock(mutex_);
    cancelling_ = true;
  }
  changed_.notify_all();
}

bool Scheduler::drain(double seconds) {
  std::unique_lock lock(mutex_);
  draining_ = true;
  const auto idle = [&] { return published_.running == 0 && waiting_ == 0; };
  const bool ended = idle_.wait_for(lock, std::chrono::duration<double>(seconds), idle);
  cancelling_ = !ended;
  changed_.notify_all();
  // The clients of what is cancelled hear of it.
  if (!ended) idle_.wait_for(lock, std::chrono::seconds(1), idle);
  return ended;
}

}  // namespace kvtide::serve
