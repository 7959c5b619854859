// coreml.h: Core ML models and their states as Python holds them.
//
// Arrays go in and out as (dtype name, shape, bytes): NumPy's float16 has no type in C++. Ownership: a model and its functions
// share the weights. Thread rules: every member is called under the GIL and gives it up while something is computed or copied;
// a second call of a model or a state that arrives meanwhile is refused. cancel() and the others at any time.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <string>

#include "arguments.h"
#include "kvtide/coreml.h"
#include "turn.h"

namespace kvtide::python {

using CoremlBytes =
    nanobind::ndarray<const std::uint8_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using CoremlShape = nanobind::typed<nanobind::tuple, std::int64_t, nanobind::ellipsis>;

using CoremlInputs = Sequence<nanobind::typed<nanobind::tuple, nanobind::any, nanobind::ellipsis>>;

class PyCoremlState {
 public:
  explicit PyCoremlState(CoremlState state) : state_(std::move(state)) {}
  ~PyCoremlState();
  PyCoremlState(const PyCoremlState&) = delete;
  PyCoremlState& operator=(const PyCoremlState&) = delete;

  const CoremlState& look() const { return state_; }  // what never changes: names, bytes
  nanobind::object read(const nanobind::str& name);   // an array of its own
  void write(const nanobind::str& name, const nanobind::str& dtype, const CoremlShape& shape,
             const CoremlBytes& bytes);
  PyCoremlState* fork();

 private:
  friend class PyCoremlModel;
  CoremlState state_;
  Turns turns_{"state"};
};

class PyCoremlModel {
 public:
  PyCoremlModel(const nanobind::bytes& path, const nanobind::str& function, int threads,
                const nanobind::str& kernels);
  ~PyCoremlModel();
  PyCoremlModel(const PyCoremlModel&) = delete;
  PyCoremlModel& operator=(const PyCoremlModel&) = delete;

  const CoremlModel& open() const;  // throws Misuse(closed)
  void close();
  bool closed() const { return model_ == nullptr; }
  PyCoremlState* make_state(const nanobind::str& function) const;
  PyCoremlState* make_state_from(PyCoremlState& from, std::int64_t position,
                                 const nanobind::str& function) const;
  void save_state(PyCoremlState& state, const nanobind::bytes& path);
  PyCoremlState* load_state(const nanobind::bytes& path, const nanobind::str& function);
  // inputs: (name, dtype, shape, bytes) of each. A dict of arrays by name.
  nanobind::object predict(const CoremlInputs& inputs, PyCoremlState* state, const nanobind::str& function);
  void cancel() { ++cancels_; }
  bool busy() const { return turns_.busy(); }

 private:
  std::unique_ptr<CoremlModel> model_;
  Turns turns_{"model"};
  std::int64_t cancels_ = 0;
};

void bind_coreml(nanobind::module_& module);

}  // namespace kvtide::python
