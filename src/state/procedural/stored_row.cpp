#include "state/procedural/stored_row.h"

#include "kernels/codec.h"
#include "state/procedural/block_rows.h"

namespace kvtide {
namespace {

void transform(const Kernels& kernels, std::span<float> row) noexcept {
  const int dim = static_cast<int>(row.size());
  kernels.attend.spread(1, dim, dim, nullptr, 0, row.data());
}

}  // namespace

void store_row(const Kernels& kernels, DType type, std::span<float> row, std::span<const float> mean,
               std::byte* out) noexcept {
  if (type == DType::q4_0) transform(kernels, row);
  for (std::size_t d = 0; d < mean.size(); ++d) row[d] -= mean[d];
  if (type == DType::q4_0)
    kernels.dense.round_to_q4_0(row.data(), std::ssize(row), out);
  else
    encode_row(type, row.data(), std::ssize(row), out);
}

void read_row(const Kernels& kernels, DType type, const std::byte* stored, std::span<const float> mean,
              std::span<float> row) noexcept {
  floats_of_row(kernels, type, stored, std::ssize(row), row.data());
  for (std::size_t d = 0; d < mean.size(); ++d) row[d] += mean[d];
  if (type == DType::q4_0) transform(kernels, row);
}

}  // namespace kvtide
