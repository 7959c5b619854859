// operations.h: the usual operations with the types of their results worked out: the builder's vocabulary.
//
//   Operations op(f);
//   const auto scores = op.matmul(query, keys, false, true);
//   const auto weights = op.softmax(op.add(scores, mask));
//
// Ownership: refers to a builder.
// Errors: invalid_argument: operands whose shapes do not fit, with both shapes.
// Thread rules: one caller.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "coreml/write/builder.h"

namespace kvtide::coreml {

// What slices an axis: constants, or names of int32 vectors with one number per axis.
struct SliceBounds {
  Given begin, end;
  std::vector<bool> begin_mask = {}, end_mask = {};  // the axis from its start, to its end
  std::vector<bool> squeeze = {};
};

class Operations {
 public:
  explicit Operations(FunctionBuilder& builder) : f_(builder) {}
  using Name = std::string;

  Name unary(std::string_view type, const Name& x);                   // same type as x
  Name binary(std::string_view type, const Name& x, const Given& y);  // y: a name or a constant; broadcast
  Name add(const Name& x, const Given& y) { return binary("add", x, y); }
  Name mul(const Name& x, const Given& y) { return binary("mul", x, y); }
  Name sub(const Name& x, const Given& y) { return binary("sub", x, y); }

  Name cast(const Name& x, DataType type);
  Name linear(const Name& x, const Name& weight, const Name& bias = "");
  Name matmul(const Name& x, const Name& y, bool transpose_x = false, bool transpose_y = false);
  Name softmax(const Name& x);  // over the last axis
  Name layer_norm(const Name& x, const Name& gamma, const Name& beta, float epsilon);
  Name rms_norm(const Name& x, const Name& gamma,
                float epsilon);  // of several operations, over the last axis
  Name gelu(const Name& x);      // by tanh

  Name reshape(const Name& x, const std::vector<int>& shape);
  Name transpose(const Name& x, const std::vector<int>& perm);
  Name expand(const Name& x, int axis);
  Name tile(const Name& x, const std::vector<int>& reps);
  Name concat(const std::vector<Name>& parts, int axis);
  std::vector<Name> split(const Name& x, int parts, int axis);
  Name gather(const Name& x, const Name& indices, int axis = 0);

  // `result`: the shape, kUnknown where it follows from the call.
  Name slice(const Name& x, const SliceBounds& bounds, Shape result);
  // Of an axis from `first` to behind `last`; 0 as `last`: to the end, and below it counts from the end, as a negative `first` does.
  Name part(const Name& x, std::size_t axis, int first, int last);
  Name slice_update(const Name& x, const Name& update, const SliceBounds& bounds);

  Name extent(const Name& x, int axis);  // int32 scalar: of a shape
  // An int32 vector of numbers that are known and names of scalars.
  Name vector(const std::vector<Given>& numbers);

 private:
  const ValueType& type(const Name& name) const { return f_.type_of(name); }
  Shape broadcast(const Shape& x, const Shape& y, std::string_view what) const;
  ValueType like(const Name& x, Shape shape) const { return tensor(type(x).dtype, std::move(shape)); }

  FunctionBuilder& f_;
};

}  // namespace kvtide::coreml
