// gemma3.cpp: Gemma 3 (text). What differs: scaled embedding, GeGLU, norms of query and key heads and after
// both halves of a block; five of six layers see a sliding window and rotate with a base of 10,000, every
// sixth sees everything. Source: the published model description and configuration of Gemma 3 (Google, 2025).
#include <cmath>

#include "model/arch/architectures.h"

namespace kvtide {
namespace {

constexpr int kPattern = 6;  // layer i is global when (i + 1) % 6 == 0

void adjust(const GgufFile& file, ModelConfig& config) {
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  config.activation = Activation::gelu;
  config.head_norms = true;
  config.post_norms = true;
  // The 27B model (62 layers) scales by its width per head instead of its head dimension.
  if (config.layers.size() == 62)
    config.attention_scale =
        1.0f / std::sqrt(static_cast<float>(config.width) / static_cast<float>(config.heads));

  RopeConfig local;
  local.base = read_real(file, "rope.local.freq_base", 1.0, 1e12, 10000.0);
  config.ropes.push_back(local);
  const auto window = read_count(file, "attention.sliding_window", 1, std::int64_t{1} << 31);
  for (std::size_t i = 0; i < config.layers.size(); ++i)
    if ((i + 1) % kPattern != 0) {
      config.layers[i].window = window;
      config.layers[i].rope = 1;
    }
}

}  // namespace

const Architecture kGemma3{"gemma3", &adjust};

}  // namespace kvtide
