// python_tested.h: a Python object as a model under test, and one as a reference.
//
// The objects are the adapters of python/kvtide/_tested.py, which give C-contiguous float32 arrays of the
// shapes that they promise. An exception that one raises becomes a kvtide::Error, and with that a finding;
// KeyboardInterrupt and its like are passed on. Thread rules: all of it under the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvtide/validate.h"

namespace kvtide::python {

class PythonModel final : public TestedModel {
 public:
  explicit PythonModel(nanobind::object adapter);
  TestedShape shape() const override { return shape_; }
  std::unique_ptr<TestedState> make_state(std::int64_t capacity) override;
  Reading read(TestedState& state, std::span<const TokenId> tokens, std::span<const float> inputs) override;
  HeldRows rows(TestedState& state, int layer) override;
  void truncate(TestedState& state, Pos length) override;
  std::unique_ptr<TestedState> fork(TestedState& state) override;
  std::unique_ptr<TestedState> through_snapshot(TestedState& state) override;
  void poison(TestedState& state, float value) override;

 private:
  nanobind::object adapter_;
  TestedShape shape_;
};

class PythonReference final : public Reference {
 public:
  explicit PythonReference(nanobind::object adapter);
  std::string name() const override { return name_; }
  Golden run(std::span<const TokenId> tokens) override;
  std::vector<double> frequencies(int layer) const override;

 private:
  nanobind::object adapter_;
  std::string name_;
  std::vector<std::vector<double>> frequencies_;
};

}  // namespace kvtide::python
