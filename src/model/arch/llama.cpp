// llama.cpp: the Llama family (Llama 2 and 3, SmolLM2, Mistral). What differs: GGUF stores its query and key
// rows so that pairs (2 i, 2 i + 1) rotate together, folders do not. Llama 3's scaling comes as a tensor,
// rope_freqs.weight, in GGUF and as a formula's constants in folders.
#include "model/arch/architectures.h"
#include "model/arch/tensor_names.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide::llama {
namespace {

void adjust(const GgufFile& file, ModelConfig& config) {
  config.rope_interleaved = true;
  read_one_window(file, config);  // of Mistral
}

void read(const JsonFields& json, ModelConfig& config) {
  read_llama_like(json, config);
  require_silu(json);
  config.ropes = {read_folder_rope(json, config, 10000.0)};
  if (json.text("model_type") == "mistral") read_windows(json, config, 0);
}

constexpr std::string_view kTypes[] = {"llama", "mistral"};

}  // namespace
}  // namespace kvtide::llama

namespace kvtide {

const Architecture kLlama{"llama",       &llama::adjust, kGgufTensors,
                          llama::kTypes, &llama::read,   kLlamaFolderTensors};

}  // namespace kvtide
