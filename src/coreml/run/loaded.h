// loaded.h: the functions of one package, opened, checked and planned: what the public CoremlModel is made of.
//
// Thread rules: one call at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coreml/program/package.h"
#include "coreml/run/executor.h"

namespace kvtide::coreml {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

// The states of one sequence. Tensors are zeros at first.
using StateTensors = std::vector<NamedTensor>;

class LoadedModel {
 public:
  // `only`: the function to load; empty: all. Throws Error.
  LoadedModel(const Package& package, int threads, const Kernels& kernels, const std::string& only = "");

  Runtime& runtime() { return *runtime_; }
  const Description& description() const { return description_; }
  const FunctionDescription& described(std::string_view function) const;  // empty: the default
  Executor& executor(std::string_view function);
  std::int64_t weight_bytes() const;

  StateTensors make_states(std::string_view function) const;
  using Keep = std::function<void(const std::vector<NamedTensor>&)>;
  // Checks everything before anything is computed. Inputs of the same kind of number are converted. go_on, keep: executor.h.
  std::vector<NamedTensor> predict(std::string_view function, const std::vector<NamedTensor>& inputs,
                                   StateTensors* states, const std::function<bool()>& go_on = {},
                                   const Keep& keep = {});

 private:
  std::string source_;
  std::unique_ptr<Runtime> runtime_;
  Description description_;
  WeightCache weights_;
  std::vector<std::unique_ptr<Executor>> executors_;
};

// What a program's own types say, for a function that no description has.
FunctionDescription description_of(const Function& function);

}  // namespace kvtide::coreml
