// session.h: a kvtide::Session as Python holds it: one call at a time.
//
// Thread rules: every member is called under the GIL and gives it up while the model computes. A second call
// that arrives meanwhile is refused; position, memory and cancel are for everyone, at any time.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvtide/generate.h"
#include "kvtide/session.h"
#include "model.h"
#include "turn.h"
#include "views.h"

namespace kvtide::python {

using Ids = nanobind::ndarray<const TokenId, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using FloatRows = nanobind::ndarray<float, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
using Doubles = nanobind::ndarray<double, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

using ConstLogits =
    nanobind::ndarray<const float, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

class PyState;

// What everyone may know of a memory at any time.
struct StateNumbers {
  Pos position = 0;
  std::int64_t rows = 0, capacity = 0, room = 0, held_bytes = 0, shared_bytes = 0, capacity_bytes = 0;
  std::optional<std::int64_t> attention_size, budget;
};
StateNumbers numbers_of(const State& state);

class PySession {
 public:
  PySession(const PyModel& model, const SessionOptions& options);
  PySession(std::shared_ptr<const Model> model, Session session);
  ~PySession();
  PySession(const PySession&) = delete;
  PySession& operator=(const PySession&) = delete;

  // Appends tokens. `progress(read, of)` is called after each chunk; an exception it raises comes out of
  // here, and False or cancel() end the call with Error(cancelled).
  void read(const Ids& ids, const nanobind::object& progress);
  // The same, and fills one row of logits for each token.
  void read_logits(const Ids& ids, const FloatRows& rows, const nanobind::object& progress);
  // The same, and fills the natural logarithm of each token's probability given all before it; NaN where
  // nothing is before it.
  void score(const Ids& ids, const Doubles& log_probabilities, const nanobind::object& progress);
  // Appends one token, without callback, and gives changes(). Throws Misuse unless that is what it was when
  // the token was chosen.
  std::int64_t advance(TokenId token, std::int64_t changes_before);

  nanobind::object logits();  // a copy
  TokenId pick(Sampler& sampler, const std::vector<TokenId>& recent);
  // The same, of logits that the caller has changed: one for every token of the vocabulary.
  TokenId pick_from(Sampler& sampler, const ConstLogits& logits, const std::vector<TokenId>& recent);
  // The same, among the tokens that the answer's form allows; `logits` may be None: the session's own.
  TokenId pick_held(Sampler& sampler, const FormPlace& place, const nanobind::object& logits,
                    const std::vector<TokenId>& recent, const std::vector<TokenId>& ends);
  std::string why_no_logits() const;  // for messages
  double log_probability(TokenId token);
  Generated generate(GenerateOptions options, const nanobind::object& on_text);

  // The memory: what changes it, and what carries it.
  TransitionRecord apply(const Transition& transition);
  // As Session::truncate, heard like read.
  TransitionRecord truncate(Pos length, const nanobind::object& progress);
  bool checkpoint();
  std::vector<Pos> checkpoints();
  PySession* fork();
  void save(const std::string& path, const std::string& cache);
  void load(const std::string& path, const std::string& cache);
  void restore(PyState& state);
  nanobind::object tokens();  // a copy, int32

  nanobind::object procedural();  // what a procedural memory holds, a dict; None for others
  void pin(Pos first, Pos last);

  void clear();
  void close();
  void cancel() { ++cancels_; }

  bool closed() const { return session_ == nullptr; }
  bool busy() const { return turns_.busy(); }
  std::int64_t cancels() const { return cancels_; }
  std::int64_t changes() const { return changes_; }  // counts what moved the position
  Pos position() const { return numbers_.position; }
  const StateNumbers& numbers() const { return numbers_; }
  const StateShape& shape() const { return shape_; }  // its capacity may be an older one
  const MemoryUse& memory() const { return memory_; }
  const SessionOptions& options() const { return options_; }

  // For PyState.
  void check_open() const;
  const State& state() const { return session_->state(); }
  const std::shared_ptr<const Model>& model() const { return model_; }
  const std::shared_ptr<Views>& views() const { return views_; }
  Turns& turns() { return turns_; }
  // For PyBatch, which holds the turn: the session, and that a step has moved its position.
  Session& session() { return *session_; }
  void note_step() noexcept;
  void note_position() noexcept;

 private:
  class Use;
  void read_with(const Ids& ids, ReadOptions options, const nanobind::object& progress);
  void read_with(const std::vector<TokenId>& tokens, ReadOptions options, const nanobind::object& progress);
  void note_memory() noexcept;  // when it is another one
  void check_history(const std::vector<TokenId>& recent) const;
  void check_logits() const;
  std::vector<float> checked_logits(const ConstLogits& logits) const;

  std::shared_ptr<const Model> model_;  // outlives the session
  std::unique_ptr<Session> session_;
  SessionOptions options_;  // with the defaults filled in
  StateNumbers numbers_;
  StateShape shape_;
  bool shape_is_known_ = false;
  MemoryUse memory_;
  std::int64_t changes_ = 0;
  static constexpr std::pair<std::int64_t, std::int64_t> kNotInterrupted{0, 0};
  std::pair<std::int64_t, std::int64_t> interrupted_ =
      kNotInterrupted;  // tokens of the newest reading, done and asked
  std::atomic<std::int64_t> cancels_{0};
  Turns turns_{"session"};
  std::shared_ptr<Views> views_ = std::make_shared<Views>();
};

void bind_session(nanobind::module_& module);

}  // namespace kvtide::python
