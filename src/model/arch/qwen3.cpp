// qwen3.cpp: Qwen 3 (dense). What differs: every query and key head is normed before its rotation.
#include "model/arch/architectures.h"
#include "model/arch/qwen.h"
#include "model/arch/tensor_names.h"

namespace kvtide::qwen3 {
namespace {

void read(const JsonFields& json, ModelConfig& config) {
  read_qwen(json, config);
  config.head_norms = true;
}

constexpr std::string_view kTypes[] = {"qwen3"};

}  // namespace
}  // namespace kvtide::qwen3

namespace kvtide {

const Architecture kQwen3{
    "qwen3",      [](const GgufFile&, ModelConfig& config) { config.head_norms = true; },
    kGgufTensors, qwen3::kTypes,
    &qwen3::read, kLlamaFolderTensors};

}  // namespace kvtide
