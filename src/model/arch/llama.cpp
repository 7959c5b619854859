// llama.cpp: the Llama family (Llama 2 and 3, SmolLM2, Mistral). What differs: GGUF stores its query and key
// rows so that pairs (2 i, 2 i + 1) rotate together. Llama 3's scaling comes as a tensor, rope_freqs.weight.
#include "model/arch/architectures.h"

namespace kvtide {
namespace {

void adjust(const GgufFile& file, ModelConfig& config) {
  config.rope_interleaved = true;
  // Mistral files may carry a sliding window; it holds for every layer.
  const auto window = read_count(file, "attention.sliding_window", 0, std::int64_t{1} << 31, 0);
  if (window > 0)
    for (auto& layer : config.layers) layer.window = window;
}

}  // namespace

const Architecture kLlama{"llama", &adjust};

}  // namespace kvtide
