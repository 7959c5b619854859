// broadcast.h: several tensors walked together under one shape, as NumPy broadcasts them.
//
// Axes that lie alike in all of them are walked as one. What remains is runs: the last axis, along which a tensor goes on by one
// element or stays where it is.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "coreml/run/runtime.h"

namespace kvtide::coreml {

// The shape that all of them broadcast to; nullopt: they do not fit together.
std::optional<Shape> broadcast_shape(std::span<const Shape* const> shapes);

template <std::size_t N>
struct BroadcastRun {
  std::int64_t first = 0;            // element of the result
  std::int64_t count = 0;            // at most kBroadcastRun
  std::array<std::int64_t, N> at;    // element of each tensor
  std::array<std::int64_t, N> step;  // 1 or 0
};

inline constexpr std::int64_t kBroadcastRun = 1024;

class BroadcastWalk {
 public:
  // Each shape must broadcast to `shape`.
  BroadcastWalk(const Shape& shape, std::span<const Shape* const> shapes);

  template <std::size_t N, class Body>
  void for_runs(Runtime& run, const Body& body) const {
    if (rows_ * width_ == 0) return;
    const std::int64_t pieces = (width_ + kBroadcastRun - 1) / kBroadcastRun;
    const std::int64_t grain =
        std::max<std::int64_t>(1, 16 * kBroadcastRun / std::min(width_, kBroadcastRun));
    in_pieces(run, rows_ * pieces, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = i / pieces, column = i % pieces * kBroadcastRun;
        BroadcastRun<N> at;
        at.first = row * width_ + column;
        at.count = std::min(kBroadcastRun, width_ - column);
        for (std::size_t t = 0; t < N; ++t) {
          at.step[t] = steps_[t].back();
          at.at[t] = offset(t, row) + column * at.step[t];
        }
        body(at);
      }
    });
  }

 private:
  std::int64_t offset(std::size_t tensor, std::int64_t row) const {
    std::int64_t at = 0;
    for (std::size_t axis = sizes_.size() - 1; axis-- > 0;) {
      at += row % sizes_[axis] * steps_[tensor][axis];
      row /= sizes_[axis];
    }
    return at;
  }
  Shape sizes_;               // of the axes that remain, at least one
  std::vector<Shape> steps_;  // [tensor][axis]
  std::int64_t rows_ = 1, width_ = 1;
};

}  // namespace kvtide::coreml
