// state.h: a kvtide::State as Python holds it: the live memory of a session, or one of its own.
//
// Thread rules: every member is called under the GIL; saving, loading and copying give it up. A live memory
// takes part in the turns of its session: while that computes, only the numbers can be read.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "kvtide/state.h"
#include "session.h"
#include "turn.h"
#include "views.h"

namespace kvtide::python {

using RawRows =
    nanobind::ndarray<const std::uint8_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using Floats = nanobind::ndarray<float, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using ConstFloats =
    nanobind::ndarray<const float, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

// What kvtide.state.TransitionRecord is made from.
using RecordTuple = std::tuple<std::string, Pos, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                               std::int64_t, std::int64_t, double, std::int64_t>;
RecordTuple as_tuple(const TransitionRecord& record);

class PyState {
 public:
  explicit PyState(nanobind::object session);  // the live memory of a PySession
  explicit PyState(State state, std::shared_ptr<const Model> model = nullptr);
  PyState(const PyState&) = delete;
  PyState& operator=(const PyState&) = delete;
  ~PyState();

  static PyState* load(const std::string& path);
  void save(const std::string& path, const std::string& cache);
  PyState* fork();

  TransitionPlan plan(const Transition& transition);
  TransitionRecord apply(const Transition& transition);
  // Takes the contents of `other`, a state of its own, which is empty afterwards. Tokens of a live memory
  // must be known.
  void replace(PyState& other);

  // A read-only array of rows in one piece, [kv_heads, positions, head_dim]; q8_0: bytes.
  nanobind::object view(int layer, KvPart part, const PosRange& positions);
  void read(int layer, KvPart part, const PosRange& positions, const Floats& rows);
  void write(int layer, KvPart part, const PosRange& positions, const ConstFloats& rows);
  void write_raw(int layer, KvPart part, const PosRange& positions, const RawRows& rows);

  const State& look() const;  // throws Misuse once closed; only for what does not change while others compute
  // What may be looked at only in a turn of one's own.
  template <class Look>
  auto in_turn(Look look_at) {
    const State& state = look();
    const Turn turn(turns());
    return look_at(state);
  }
  StateNumbers numbers() const;
  StateShape shape() const;
  const std::shared_ptr<const Model>& model() const { return model_; }

  void close();  // a live memory belongs to its session, and only the handle is closed
  bool closed() const { return closed_ || (session_ != nullptr && session_->closed()); }
  bool live() const { return session_ != nullptr; }
  bool busy() { return turns().busy(); }
  std::size_t views() const { return shown().count(); }

 private:
  friend class PySession;
  Turns& turns() { return session_ != nullptr ? session_->turns() : own_turns_; }
  const Views& shown() const { return session_ != nullptr ? *session_->views() : *own_views_; }

  nanobind::object session_object_;  // keeps session_ alive
  PySession* session_ = nullptr;
  std::unique_ptr<State> own_;
  std::shared_ptr<const Model> model_;  // what the rows were computed with, if known
  Turns own_turns_{"state"};
  std::shared_ptr<Views> own_views_ = std::make_shared<Views>();
  bool closed_ = false;
};

void bind_state(nanobind::module_& module);

}  // namespace kvtide::python
