// qwen2.cpp: Qwen 2 and 2.5. What differs: biases on query, key and value (loaded where present); halves
// rotate together.
#include "model/arch/architectures.h"

namespace kvtide {

const Architecture kQwen2{"qwen2", [](const GgufFile&, ModelConfig&) {}};

}  // namespace kvtide
