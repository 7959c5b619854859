// qwen2.cpp: Qwen 2 and 2.5. What differs: biases on query, key and value (loaded where present); halves
// rotate together.
#include "model/arch/architectures.h"
#include "model/arch/qwen.h"
#include "model/arch/tensor_names.h"

namespace kvtide::qwen2 {
namespace {

constexpr std::string_view kTypes[] = {"qwen2"};

}  // namespace
}  // namespace kvtide::qwen2

namespace kvtide {

const Architecture kQwen2{"qwen2",      [](const GgufFile&, ModelConfig&) {},
                          kGgufTensors, qwen2::kTypes,
                          &read_qwen,   kLlamaFolderTensors};

}  // namespace kvtide
