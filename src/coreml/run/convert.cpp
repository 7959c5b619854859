#include "coreml/run/convert.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"

namespace kvtide::coreml {
namespace {

constexpr std::int64_t kConvertGrain = 32768;

template <class From, class To>
void copy_numbers(const From* from, std::int64_t n, To* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
}

// Towards zero; what no int32 can say becomes its nearest end, and NaN becomes 0.
std::int32_t towards_zero(float value) {
  if (!(value == value)) return 0;
  if (value >= 2147483648.0f) return std::numeric_limits<std::int32_t>::max();
  if (value < -2147483648.0f) return std::numeric_limits<std::int32_t>::min();
  return static_cast<std::int32_t>(value);
}

// Lanes of sixteen by the kernels, the rest one by one.
void widen_all(const Kernels& kernels, const std::uint16_t* from, std::int64_t n, float* to) {
  const std::int64_t whole_lanes = n / 16 * 16;
  if (whole_lanes > 0) kernels.dense.widen(from, whole_lanes, to);
  for (std::int64_t i = whole_lanes; i < n; ++i) to[i] = f16_to_f32(from[i]);
}

template <class To>
void load_integers(const Tensor& from, std::int64_t first, std::int64_t n, To* to) {
  switch (from.dtype) {
    case DataType::int32:
      return copy_numbers(from.as<const std::int32_t>() + first, n, to);
    case DataType::int16:
      return copy_numbers(from.as<const std::int16_t>() + first, n, to);
    case DataType::uint16:
      return copy_numbers(from.as<const std::uint16_t>() + first, n, to);
    case DataType::int8:
      return copy_numbers(from.as<const std::int8_t>() + first, n, to);
    default:  // uint8, and a boolean's byte
      return copy_numbers(from.as<const std::uint8_t>() + first, n, to);
  }
}

template <class From>
void store_integers(const From* from, std::int64_t n, const Tensor& to, std::int64_t first) {
  switch (to.dtype) {
    case DataType::int32:
      return copy_numbers(from, n, to.as<std::int32_t>() + first);
    case DataType::int16:
      return copy_numbers(from, n, to.as<std::int16_t>() + first);
    case DataType::uint16:
      return copy_numbers(from, n, to.as<std::uint16_t>() + first);
    case DataType::int8:
      return copy_numbers(from, n, to.as<std::int8_t>() + first);
    case DataType::uint8:
      return copy_numbers(from, n, to.as<std::uint8_t>() + first);
    default:
      for (std::int64_t i = 0; i < n; ++i) to.as<std::uint8_t>()[first + i] = from[i] != 0 ? 1 : 0;
  }
}

}  // namespace

void load(const Kernels& kernels, const Tensor& from, std::int64_t first, std::int64_t n, float* to) {
  if (from.dtype == DataType::fp16) return widen_all(kernels, from.as<const std::uint16_t>() + first, n, to);
  if (from.dtype != DataType::fp32) return load_integers(from, first, n, to);
  std::memcpy(to, from.as<const float>() + first, static_cast<std::size_t>(n) * sizeof(float));
}

void load(const Kernels& kernels, const Tensor& from, std::int64_t first, std::int64_t n, std::int32_t* to) {
  if (!is_float(from.dtype)) return load_integers(from, first, n, to);
  float piece[256];
  for (std::int64_t done = 0; done < n; done += 256) {
    const std::int64_t count = std::min<std::int64_t>(256, n - done);
    load(kernels, from, first + done, count, piece);
    for (std::int64_t i = 0; i < count; ++i) to[done + i] = towards_zero(piece[i]);
  }
}

void store(const Kernels& kernels, const float* from, std::int64_t n, const Tensor& to, std::int64_t first) {
  if (to.dtype == DataType::fp16) return kernels.elementwise.to_f16(from, n, to.as<std::uint16_t>() + first);
  if (to.dtype == DataType::fp32) {
    if (to.as<float>() + first != from)
      std::memcpy(to.as<float>() + first, from, static_cast<std::size_t>(n) * sizeof(float));
    return;
  }
  if (to.dtype == DataType::boolean) return store_integers(from, n, to, first);
  std::int32_t piece[256];
  for (std::int64_t done = 0; done < n; done += 256) {
    const std::int64_t count = std::min<std::int64_t>(256, n - done);
    for (std::int64_t i = 0; i < count; ++i) piece[i] = towards_zero(from[done + i]);
    store_integers(piece, count, to, first + done);
  }
}

void store(const Kernels& kernels, const std::int32_t* from, std::int64_t n, const Tensor& to,
           std::int64_t first) {
  if (!is_float(to.dtype)) return store_integers(from, n, to, first);
  float piece[256];
  for (std::int64_t done = 0; done < n; done += 256) {
    const std::int64_t count = std::min<std::int64_t>(256, n - done);
    copy_numbers(from + done, count, piece);
    store(kernels, piece, count, to, first + done);
  }
}

Floats::Floats(Runtime& run, const Tensor& tensor) {
  if (tensor.dtype == DataType::fp32) {
    held_ = tensor;
    return;
  }
  held_ = run.tensors.take(DataType::fp32, tensor.shape);
  in_pieces(run, tensor.elements(), kConvertGrain, [&](std::int64_t first, std::int64_t last) {
    load(run.kernels, tensor, first, last - first, held_.as<float>() + first);
  });
}

FloatResult::FloatResult(Runtime& run, const Tensor& tensor)
    : run_(run),
      out_(tensor),
      held_(tensor.dtype == DataType::fp32 ? tensor : run.tensors.take(DataType::fp32, tensor.shape)) {}

void FloatResult::store() {
  if (out_.dtype == DataType::fp32) return;
  in_pieces(run_, out_.elements(), kConvertGrain, [&](std::int64_t first, std::int64_t last) {
    coreml::store(run_.kernels, held_.as<const float>() + first, last - first, out_, first);
  });
}

}  // namespace kvtide::coreml
