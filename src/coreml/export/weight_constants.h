// weight_constants.h: the weights of a model as constants of a program: f16, or integers with scales.
//
// Integers are symmetric: element = scale * integer, scale = largest magnitude / 127 (int8) or / 7 (int4), rounded to f16 first,
// of a whole matrix, of each output, or of 32 inputs of an output. Matrices below 2,048 elements, and of int4 those whose
// rows are no multiple of 32, stay f16. Bytes are made when the weight file is written, one matrix at a time.
// Ownership: refers to kernels, threads and matrices, which must live until the package is written.
// Errors: numeric: a number that f16 cannot hold.
// Thread rules: one caller.
#pragma once

#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "coreml/write/builder.h"
#include "kernels/kernels.h"
#include "kernels/matmul.h"
#include "kvtide/coreml.h"

namespace kvtide::coreml {

class WeightConstants {
 public:
  WeightConstants(const Kernels& kernels, ThreadPool& pool, CoremlWeights how)
      : kernels_(kernels), pool_(pool), how_(how) {}

  // The matrix [rows, columns] as f16 numbers of the function.
  std::string matrix(FunctionBuilder& f, const std::string& name, const WeightMatrix& matrix) const;
  // The first `rows` of it, always as f16.
  std::string plain(FunctionBuilder& f, const std::string& name, const WeightMatrix& matrix,
                    std::int64_t rows) const;
  // f16, times `scale`.
  static std::string vector(FunctionBuilder& f, const std::string& name, const std::vector<float>& values,
                            float scale = 1.0f);
  static std::string numbers(FunctionBuilder& f, const std::string& name, Shape shape,
                             const std::vector<float>& values);  // f16

 private:
  std::string integers(FunctionBuilder& f, const std::string& name, const WeightMatrix& matrix, DataType type,
                       std::int64_t block) const;

  const Kernels& kernels_;
  ThreadPool& pool_;
  CoremlWeights how_;
};

}  // namespace kvtide::coreml
