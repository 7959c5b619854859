#include "state/procedural/key_rounding.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "tensor/blocks.h"

namespace kvtide {
namespace {

// What H is made from: queries count 1, keys this, and so does every direction alike.
constexpr float kKeysShare = 0.3f, kEveryShare = 0.3f;
constexpr std::size_t kElements = 32;  // of a block
constexpr std::size_t kRows = 16;      // that are rounded together

float scale_of(const std::byte* block) {
  BlockQ4_0 held;
  std::memcpy(&held, block, sizeof held);
  return f16_to_f32(held.d);
}

// codes: -8 to 7, kRows apart.
void put_codes(const float* codes, std::byte* block) {
  const auto nibble = [&](std::size_t e) {
    return static_cast<unsigned>(static_cast<int>(codes[e * kRows]) + 8);
  };
  BlockQ4_0 held;
  std::memcpy(&held, block, sizeof held);
  for (std::size_t e = 0; e < kElements / 2; ++e)
    held.qs[e] = static_cast<std::uint8_t>(nibble(e) | nibble(e + kElements / 2) << 4);
  std::memcpy(block, &held, sizeof held);
}

// [count][dim], as keys of four bits lie.
std::vector<float> transformed(const Kernels& kernels, const std::vector<float>& rows, std::int64_t count,
                               std::int64_t dim) {
  std::vector<float> out(rows.begin(), rows.begin() + count * dim);
  kernels.attend.spread(static_cast<int>(count), static_cast<int>(dim), static_cast<int>(dim), nullptr, 0,
                        out.data());
  return out;
}

// h [dim][dim] += the sum of x x^T over rows [count][dim], less what makes its trace `share`. False if they have none.
bool add_products(const Kernels& kernels, const std::vector<float>& rows, std::int64_t dim, float share,
                  std::vector<float>& h) {
  const std::int64_t count = std::ssize(rows) / dim;
  const auto n = static_cast<std::size_t>(dim);
  std::vector<float> turned(rows.size()), products(h.size());
  transpose(rows.data(), count, dim, 1.0f, turned.data());
  kernels.dense.mix(turned.data(), dim, count, rows.data(), dim, products.data());
  float trace = 0.0f;
  for (std::size_t k = 0; k < n; ++k) trace += products[k * n + k];
  if (!(trace > 0.0f) || !std::isfinite(share / trace)) return false;
  for (std::size_t i = 0; i < h.size(); ++i) h[i] += products[i] * (share / trace);
  return true;
}

}  // namespace

KeyRounding::KeyRounding(const Kernels& kernels, const ReferenceRows& asked, const BlockRows& block,
                         std::span<const float> mean)
    : kernels_(kernels), dim_(block.padded_dim) {
  const auto n = static_cast<std::size_t>(dim_);
  std::vector<float> h(n * n);
  if (!add_products(kernels, transformed(kernels, asked.queries, asked.count, dim_), dim_, 1.0f, h)) return;
  std::vector<float> keys = transformed(kernels, block.keys, block.rows, dim_);
  for (std::size_t row = 0; row < keys.size(); row += n)
    for (std::size_t d = 0; d < mean.size(); ++d) keys[row + d] -= mean[d];
  add_products(kernels, keys, dim_, kKeysShare, h);
  for (std::size_t k = 0; k < n; ++k) h[k * n + k] += kEveryShare / static_cast<float>(n);
  minus_u_.resize(n * n);
  kernels.dense.factor(h.data(), dim_, minus_u_.data());
}

void KeyRounding::improve(const std::vector<float>& rows, std::byte* blocks) const {
  if (minus_u_.empty()) return;
  const auto n = static_cast<std::size_t>(dim_), count = rows.size() / n, of_row = n / kElements;
  std::vector<float> x(n * kRows), codes(n * kRows), scales(of_row * kRows), inverses(of_row * kRows);
  for (std::size_t first = 0; first < count; first += kRows) {
    const std::size_t now = std::min(kRows, count - first);
    std::byte* at = blocks + first * of_row * sizeof(BlockQ4_0);
    for (std::size_t r = 0; r < now; ++r) {
      for (std::size_t k = 0; k < n; ++k) x[k * kRows + r] = rows[(first + r) * n + k];
      for (std::size_t b = 0; b < of_row; ++b) {
        const float scale = scale_of(at + (r * of_row + b) * sizeof(BlockQ4_0));
        scales[b * kRows + r] = scale;
        inverses[b * kRows + r] = scale == 0.0f ? 0.0f : 1.0f / scale;
      }
    }
    kernels_.dense.round_in_turn(x.data(), dim_, scales.data(), inverses.data(), minus_u_.data(),
                                 codes.data());
    for (std::size_t r = 0; r < now; ++r)
      for (std::size_t b = 0; b < of_row; ++b)
        put_codes(codes.data() + b * kElements * kRows + r, at + (r * of_row + b) * sizeof(BlockQ4_0));
  }
}

}  // namespace kvtide
