// compressed.h: constants that stay as small as a file has them: quantised, palettised, sparse, and each of these of another.
//
// What the operations constexpr_* describe is a chain: numbers as they are stored, spread over a mask, looked up in a table,
// scaled block by block. A chain gives its elements run by run, so that a product decodes a tile at a time. Elements are those
// that coremltools itself computes, bit for bit: each step is rounded to the type of its result.
// Ownership: a chain keeps what its bytes lie in.
// Thread rules: const from any thread.
// Source: coremltools, ops iOS16/constexpr_ops.py and iOS18/compression.py (what they compute).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "coreml/program/program.h"
#include "coreml/run/tensor.h"
#include "kernels/kernels.h"

namespace kvtide::coreml {

class Compressed {
 public:
  Compressed(DataType dtype, Shape shape) : dtype_(dtype), shape_(std::move(shape)) {}
  virtual ~Compressed() = default;
  Compressed(const Compressed&) = delete;
  Compressed& operator=(const Compressed&) = delete;

  DataType dtype() const { return dtype_; }  // of the elements as a program sees them
  const Shape& shape() const { return shape_; }
  std::int64_t elements() const { return elements_in(shape_); }

  // Elements [first, first + count), the last axis fastest. Any count; a few hundred at a time are fastest.
  virtual void decode(const Kernels& kernels, std::int64_t first, std::int64_t count, float* out) const = 0;
  virtual std::int64_t bytes() const = 0;  // in memory or in the file, tables included

  // Elements of a matrix that are scale * integer and nothing else: the integers, of 4 or 8 bits with a sign, and how many in a row
  // share a scale.
  struct ScaledIntegers {
    const Compressed* integers = nullptr;
    int bits = 0;
    std::int64_t run = 0;
  };
  virtual std::optional<ScaledIntegers> scaled_integers() const { return std::nullopt; }
  virtual float scale_at(std::int64_t) const { return 1.0f; }  // of an element
  // Numbers that lie in a mapped file: nobody needs them for now (MappedFile::release).
  virtual void release_pages() const noexcept {}

 private:
  DataType dtype_;
  Shape shape_;
};

using CompressedPtr = std::shared_ptr<const Compressed>;

// Numbers as they are stored: 1 to 8 bits, or floats. `shape` may be another one of as many elements.
CompressedPtr stored_numbers(const Value& value, DataType dtype, Shape shape);
CompressedPtr stored_numbers(const Tensor& tensor);

// scale * (data - offset); each axis of scale divides that of data. `offset` may be nullptr.
CompressedPtr scaled_blocks(CompressedPtr data, const Tensor& scale, CompressedPtr offset,
                            const Kernels& kernels);
// table[group][index][component]: its first axes divide those of `indices`, then 2^bits entries of so many components, which
// lie along `vector_axis`.
CompressedPtr palette(CompressedPtr indices, const Tensor& table, std::int64_t vector_axis,
                      const Kernels& kernels);
// The ones of `mask` take the values in order; everything else is 0.
CompressedPtr spread_over(CompressedPtr values, CompressedPtr mask, const Kernels& kernels);
// The same elements, and 0 where the mask is 0.
CompressedPtr masked(CompressedPtr values, CompressedPtr mask);

Tensor dense_tensor(const Kernels& kernels, const Compressed& compressed);

}  // namespace kvtide::coreml
