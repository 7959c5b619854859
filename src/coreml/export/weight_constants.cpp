#include "coreml/export/weight_constants.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/half.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "model/matrix_rows.h"

namespace kvtide::coreml {
namespace weight_constants_details {

constexpr std::int64_t kLeastQuantized = 2048;
constexpr std::int64_t kBlock = 32;

[[noreturn]] void refuse_large(const std::string& name) {
  throw Error(ErrorCode::numeric,
              cat("the tensor ", name, " holds numbers beyond 65504, which f16 cannot hold"));
}

std::vector<std::byte> halves_of(const Kernels& kernels, ThreadPool& pool, const std::string& name,
                                 const WeightMatrix& matrix, std::int64_t rows) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(rows * matrix.columns) * 2);
  std::atomic<bool> fits{true};
  each_matrix_row(kernels, pool, matrix, 0, rows, [&](std::int64_t row, const float* values) {
    auto* out = reinterpret_cast<std::uint16_t*>(bytes.data()) + row * matrix.columns;
    kernels.elementwise.to_f16(values, matrix.columns, out);
    constexpr std::uint16_t kInfinity = 0x7c00;
    if (std::any_of(out, out + matrix.columns,
                    [](std::uint16_t half) { return (half & kInfinity) == kInfinity; }))
      fits.store(false, std::memory_order_relaxed);
  });
  if (!fits.load()) refuse_large(name);
  return bytes;
}

// How a matrix is cut: blocks of `block` inputs of one output, or all of it.
struct Scales {
  std::int64_t block = 0, blocks = 0;  // of a row
  bool one = false;                    // for all rows
  std::vector<float> values;           // as f16 has them

  float at(std::int64_t row, std::int64_t column) const {
    return one ? values[0] : values[static_cast<std::size_t>(row * blocks + column / block)];
  }
};

Scales scales_of(const Kernels& kernels, ThreadPool& pool, const std::string& name,
                 const WeightMatrix& matrix, std::int64_t block, bool one, float most) {
  Scales scales{block, matrix.columns / block, one, {}};
  std::vector<float> largest(static_cast<std::size_t>(matrix.rows * scales.blocks));
  each_matrix_row(kernels, pool, matrix, 0, matrix.rows, [&](std::int64_t row, const float* values) {
    for (std::int64_t k = 0; k < matrix.columns; ++k) {
      float& here = largest[static_cast<std::size_t>(row * scales.blocks + k / block)];
      here = std::max(here, std::fabs(values[k]));
    }
  });
  if (one) largest = {*std::max_element(largest.begin(), largest.end())};
  for (const float value : largest) {
    const float scale = f16_to_f32(f32_to_f16(value / most));
    if (!(scale <= 65504.0f)) refuse_large(name);
    scales.values.push_back(scale > 0.0f ? scale : 1.0f);
  }
  return scales;
}

std::vector<std::byte> integers_of(const Kernels& kernels, ThreadPool& pool, const WeightMatrix& matrix,
                                   const Scales& scales, int bits) {
  const float most = bits == 8 ? 127.0f : 7.0f;
  std::vector<std::byte> bytes(static_cast<std::size_t>(matrix.rows * matrix.columns * bits / 8));
  each_matrix_row(kernels, pool, matrix, 0, matrix.rows, [&](std::int64_t row, const float* values) {
    std::byte* out = bytes.data() + row * matrix.columns * bits / 8;
    for (std::int64_t k = 0; k < matrix.columns; ++k) {
      const auto integer =
          static_cast<int>(std::clamp(std::nearbyint(values[k] / scales.at(row, k)), -most, most));
      if (bits == 8)
        out[k] = static_cast<std::byte>(integer);
      else
        out[k / 2] |= static_cast<std::byte>((integer & 15) << (k % 2 * 4));
    }
  });
  return bytes;
}

}  // namespace weight_constants_details

using namespace weight_constants_details;

std::string WeightConstants::plain(FunctionBuilder& f, const std::string& name, const WeightMatrix& matrix,
                                   std::int64_t rows) const {
  return f.constant(name, later(DataType::fp16, {rows, matrix.columns}, [=, this, &matrix] {
                      return halves_of(kernels_, pool_, name, matrix, rows);
                    }));
}

std::string WeightConstants::integers(FunctionBuilder& f, const std::string& name, const WeightMatrix& matrix,
                                      DataType type, std::int64_t block) const {
  const int bits = type == DataType::int8 ? 8 : 4;
  const bool one = how_ == CoremlWeights::int8_tensor;
  auto scales = std::make_shared<const Scales>(
      scales_of(kernels_, pool_, name, matrix, block, one, bits == 8 ? 127.0f : 7.0f));
  const Shape shape = {matrix.rows, matrix.columns};
  const Value data =
      later(type, shape, [=, this, &matrix] { return integers_of(kernels_, pool_, matrix, *scales, bits); });
  const Shape blocks = one ? Shape{1, 1} : Shape{matrix.rows, scales->blocks};
  return f.op("constexpr_blockwise_shift_scale", {{"data", data}, {"scale", halves(blocks, scales->values)}},
              tensor(DataType::fp16, shape), name);
}

std::string WeightConstants::matrix(FunctionBuilder& f, const std::string& name,
                                    const WeightMatrix& matrix) const {
  const bool small = matrix.rows * matrix.columns < kLeastQuantized;
  if (how_ == CoremlWeights::f16 || small) return plain(f, name, matrix, matrix.rows);
  if (how_ != CoremlWeights::int4) return integers(f, name, matrix, DataType::int8, matrix.columns);
  if (matrix.columns % kBlock != 0) return plain(f, name, matrix, matrix.rows);
  return integers(f, name, matrix, DataType::int4, kBlock);
}

std::string WeightConstants::vector(FunctionBuilder& f, const std::string& name,
                                    const std::vector<float>& values, float scale) {
  std::vector<float> scaled(values);
  for (float& number : scaled) number *= scale;
  return numbers(f, name, {static_cast<std::int64_t>(scaled.size())}, scaled);
}

std::string WeightConstants::numbers(FunctionBuilder& f, const std::string& name, Shape shape,
                                     const std::vector<float>& values) {
  for (const float number : values)
    if (!(std::fabs(number) <= 65504.0f)) refuse_large(name);
  return f.constant(name, halves(std::move(shape), values));
}

}  // namespace kvtide::coreml
