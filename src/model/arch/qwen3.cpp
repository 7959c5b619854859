// qwen3.cpp: Qwen 3 (dense). What differs: every query and key head is normed before its rotation.
#include "model/arch/architectures.h"

namespace kvtide {

const Architecture kQwen3{"qwen3", [](const GgufFile&, ModelConfig& config) { config.head_norms = true; }};

}  // namespace kvtide
