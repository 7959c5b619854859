// channel_conv.h: what stands before the recurrences of gated delta nets and of Mamba-2: a causal convolution of every
// channel by itself, and silu.
//
//   y_t = silu(bias + sum over taps of tap * x)      x: the projections of the last tokens, zeros before the first
// A layer carries one tensor from token to token (state/recurrent.h): conv_state [channels][taps - 1], x of the last
// tokens, the oldest first.
// Ownership: refers to the weights and the rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/elementwise.h"
#include "model/weight_source.h"
#include "state/state.h"

namespace kvtide {

// A checkpoint's taps [channels][1][taps] as [taps][channels].
std::vector<float> load_channel_taps(WeightSource& source, Role role, std::int64_t channels,
                                     std::int64_t taps);

class ChannelConv {
 public:
  // taps: [taps][channels]; bias: [channels], or empty. past: of the tensor that is carried. rows: [tokens][channels].
  ChannelConv(std::span<const float> taps, std::span<const float> bias, std::int64_t channels,
              std::span<const std::byte> past, const float* rows);

  // y [channels] of token t.
  void convolve(const ElementwiseRow& rows, std::int64_t t, float* y) const;
  // The step keeps what is carried behind its tokens. Throws Error(numeric) when that is not finite.
  void carry(KvState::Step& step, std::size_t tensor) const;

 private:
  const float* row(std::int64_t t) const {
    return t < 0 ? before_.data() + (t + past_) * channels_ : rows_ + t * channels_;
  }

  std::span<const float> taps_, bias_;
  std::int64_t channels_, past_;
  const float* rows_;
  std::vector<float> before_;  // [taps - 1][channels]
};

}  // namespace kvtide
