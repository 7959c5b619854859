#include "shards/tensor_export.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "kernels/codec.h"
#include "kvtide/error.h"
#include "model/matrix_rows.h"

namespace kvtide {
namespace {

template <class Body>
void for_rows(const Kernels& kernels, ThreadPool& pool, const MatrixExport& what, Body body) {
  each_matrix_row(kernels, pool, *what.matrix, what.first, what.last, std::move(body));
}

float largest_of(const float* row, std::int64_t columns) {
  float largest = 0.0f;
  for (std::int64_t k = 0; k < columns; ++k) largest = std::max(largest, std::fabs(row[k]));
  return largest;
}

float scale_for(float largest) {
  const float scale = largest / 127.0f;
  return scale > 0.0f ? scale : 1.0f;
}

void round_row(const float* row, std::int64_t columns, float scale, std::int8_t* out) {
  for (std::int64_t k = 0; k < columns; ++k)
    out[k] = static_cast<std::int8_t>(std::clamp(std::nearbyint(row[k] / scale), -127.0f, 127.0f));
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

void export_matrix(const Kernels& kernels, ThreadPool& pool, const MatrixExport& what,
                   SafeTensorsWriter& writer, ShardEntry& shard) {
  const std::int64_t rows = what.last - what.first, columns = what.matrix->columns;
  const std::vector<std::int64_t> shape = {rows, columns};
  const auto add = [&](const std::string& name, const char* dtype, const std::vector<std::int64_t>& extents,
                       std::vector<std::byte> bytes) {
    writer.add(name, dtype, extents, std::move(bytes));
    shard.tensors.push_back({name, dtype, extents});
  };
  if (!what.int8 && what.f32) {
    std::vector<float> numbers(static_cast<std::size_t>(rows * columns));
    for_rows(kernels, pool, what, [&](std::int64_t row, const float* values) {
      std::copy_n(values, columns, numbers.data() + row * columns);
    });
    return add(what.name, "F32", shape, bytes_of(numbers));
  }
  if (!what.int8) {
    std::vector<std::byte> halves(static_cast<std::size_t>(rows * columns) * 2);
    std::atomic<bool> fits{true};
    for_rows(kernels, pool, what, [&](std::int64_t row, const float* values) {
      std::byte* out = halves.data() + row * columns * 2;
      kernels.elementwise.to_f16(values, columns, reinterpret_cast<std::uint16_t*>(out));
      if (!scales_finite(DType::f16, out, columns)) fits.store(false, std::memory_order_relaxed);
    });
    if (!fits.load())
      throw Error(ErrorCode::numeric, cat("shard ", shard.info.name, ": tensor '", what.name,
                                          "' holds numbers beyond 65504, which f16 cannot hold"));
    return add(what.name, "F16", shape, std::move(halves));
  }
  std::vector<float> largest(static_cast<std::size_t>(rows));
  for_rows(kernels, pool, what, [&](std::int64_t row, const float* values) {
    largest[static_cast<std::size_t>(row)] = largest_of(values, columns);
  });
  if (what.scales == ShardExport::Scales::tensor)
    largest = {*std::max_element(largest.begin(), largest.end())};
  std::vector<float> scales;
  for (const float value : largest) scales.push_back(scale_for(value));
  std::vector<std::byte> integers(static_cast<std::size_t>(rows * columns));
  for_rows(kernels, pool, what, [&](std::int64_t row, const float* values) {
    round_row(values, columns, scales[scales.size() > 1 ? static_cast<std::size_t>(row) : 0],
              reinterpret_cast<std::int8_t*>(integers.data() + row * columns));
  });
  add(what.name, "I8", shape, std::move(integers));
  add(what.name + "_scale", "F32", {static_cast<std::int64_t>(scales.size())}, bytes_of(scales));
}

void export_vector(const std::string& name, const std::vector<float>& values, SafeTensorsWriter& writer,
                   ShardEntry& shard, std::int64_t columns) {
  std::vector<std::int64_t> shape = {static_cast<std::int64_t>(values.size())};
  if (columns > 0) shape = {shape[0] / columns, columns};
  writer.add(name, "F32", shape, bytes_of(values));
  shard.tensors.push_back({name, "F32", shape});
}

}  // namespace kvtide
