// live_state.h: a live KV state of SmolLM2-135M's shape, and what the operating system says of this process.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "state/state.h"

namespace kvtide::bench {

constexpr int kLayers = 30, kHeads = 3, kHeadDim = 64;
constexpr std::int64_t kTokenBytes = std::int64_t{2} * kLayers * kHeads * kHeadDim * 2;

inline KvState smollm2_state(std::int64_t capacity) {
  KvSpec spec;
  spec.layers.assign(kLayers, LayerSpec{kHeads, kHeadDim, std::nullopt});
  spec.capacity = capacity;
  spec.max_step = 512;
  return KvState(spec);
}

// Appends rows up to `rows`, with numbers that differ from row to row.
inline void fill(KvState& state, std::int64_t rows) {
  const ElementwiseRow& kernels = best_kernels().elementwise;
  std::vector<float> key(kHeadDim), value(kHeadDim);
  while (state.position() < rows) {
    KvState::Step step = state.begin(std::min<std::int64_t>(512, rows - state.position()));
    for (int layer = 0; layer < kLayers; ++layer)
      for (int head = 0; head < kHeads; ++head)
        for (std::int64_t t = 0; t < step.tokens(); ++t) {
          for (std::size_t i = 0; i < key.size(); ++i) {
            key[i] =
                static_cast<float>((step.first() + t + static_cast<std::int64_t>(i) * 7 + layer) % 251) / 64;
            value[i] = -key[i];
          }
          step.write(kernels, layer, head, t, key.data(), value.data());
        }
    step.commit();
  }
}

// Anonymous memory of this process, in bytes.
inline std::int64_t resident() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);)
    if (line.starts_with("Anonymous:")) return std::stoll(line.substr(10)) * 1024;
  return 0;
}

}  // namespace kvtide::bench
