// session.h: a kvtide::Session as Python holds it: one call at a time, in the process that made it.
//
// Thread rules: every member is called under the GIL and gives it up while the model computes. A second call
// that arrives meanwhile is refused; position, memory and cancel are for everyone, at any time.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvtide/generate.h"
#include "kvtide/session.h"
#include "model.h"

namespace kvtide::python {

using Ids = nanobind::ndarray<const TokenId, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using FloatRows = nanobind::ndarray<float, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
using Doubles = nanobind::ndarray<double, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

class PySession {
 public:
  PySession(const PyModel& model, const SessionOptions& options);
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
  // Appends one token, without callback.
  void advance(TokenId token);

  nanobind::object logits();  // a copy
  TokenId pick(Sampler& sampler, const std::vector<TokenId>& recent);
  double log_probability(TokenId token);
  Generated generate(GenerateOptions options, const nanobind::object& on_text);

  void clear();
  void close();
  void cancel() { ++cancels_; }

  bool closed() const { return session_ == nullptr; }
  bool busy() const { return busy_; }
  std::int64_t cancels() const { return cancels_; }
  std::int64_t changes() const { return changes_; }  // counts what moved the position
  Pos position() const { return position_; }
  const MemoryUse& memory() const { return memory_; }
  const SessionOptions& options() const { return options_; }

 private:
  class Use;
  void read_with(const Ids& ids, ReadOptions options, const nanobind::object& progress);
  void note_position();
  void check_open() const;

  std::shared_ptr<const Model> model_;  // outlives the session
  std::unique_ptr<Session> session_;
  const pid_t process_;
  SessionOptions options_;  // with the defaults filled in
  Pos position_ = 0;
  MemoryUse memory_;
  std::int64_t changes_ = 0;
  std::atomic<std::int64_t> cancels_{0};
  bool busy_ = false;
};

void bind_session(nanobind::module_& module);

}  // namespace kvtide::python
