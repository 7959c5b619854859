// tensor.h: what a running program computes with: a shape, an element type and bytes that several tensors may share.
//
// Elements lie without gaps, the last axis fastest. Types in memory: fp16, fp32, int32, int16, uint16, int8, uint8, and a byte
// for a boolean; sub-byte and 64-bit types of a file are widened or narrowed to these when a constant is taken (constant.h).
// Ownership: bytes are shared and counted. Whoever writes must be their only owner (`sole_owner`); views made by `view` count.
// Thread rules: a tensor belongs to one call; bytes that nobody writes may be read by all threads of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "coreml/program/program.h"

namespace kvtide::coreml {

std::int64_t elements_in(const Shape& shape);  // of known dimensions; 1 for a single number
std::string text_of(const Shape& shape);       // "[1, 2, 3]"

inline bool is_float(DataType type) { return type == DataType::fp16 || type == DataType::fp32; }
// Whether tensors can hold it.
bool runs(DataType type);

struct Tensor {
  DataType dtype = DataType::none;
  Shape shape;
  std::shared_ptr<std::byte> data;

  std::int64_t elements() const { return elements_in(shape); }
  std::int64_t rank() const { return static_cast<std::int64_t>(shape.size()); }
  std::size_t bytes() const;

  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data.get());
  }

  // The same elements under another shape of as many.
  Tensor reshaped(Shape other) const { return {dtype, std::move(other), data}; }
  // Elements [first, first + as many as `other` has) where they lie.
  Tensor view(std::int64_t first, Shape other) const;
  bool sole_owner() const { return data.use_count() == 1; }
};

std::size_t element_bytes(DataType type);

// Where the bytes of tensors come from: pieces that came back are given out again, so that a call like the last one takes no new
// memory. Tensors keep what they were made of alive, longer than the Workspace itself if need be.
// Thread rules: take from one thread at a time; give back from any.
class TensorPool {
 public:
  TensorPool();
  ~TensorPool();
  TensorPool(const TensorPool&) = delete;
  TensorPool& operator=(const TensorPool&) = delete;

  // Contents are whatever was there. Aligned to 64 bytes, with 64 bytes of room behind the end.
  Tensor take(DataType dtype, Shape shape);
  std::int64_t held_bytes() const;  // in use and kept for later

 private:
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;
};

// A tensor of its own of memory that starts as zeros and is taken by the first touch: a state.
Tensor zeroed_tensor(DataType dtype, Shape shape);

}  // namespace kvtide::coreml
