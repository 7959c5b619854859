// qwen3_5.cpp: Qwen 3.5 (text), with and without experts: gated delta nets and gated attention (qwen_linear.h). Folders
// may hold a model of text and images, of which the text is read; its rotation by three axes is the usual one for text.
// GGUF files have the value heads of delta nets in another order than folders.
#include "model/arch/architectures.h"
#include "model/arch/qwen_linear.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide::qwen3_5 {
namespace {

void adjust(const GgufFile& file, ModelConfig& config) {
  read_qwen_linear(file, config);
  config.delta->tiled = true;
}

void adjust_routed(const GgufFile& file, ModelConfig& config) {
  adjust(file, config);
  config.experts = read_experts(file);
  config.experts->shares_sum_to_1 = true;
  read_shared_expert(file, config);
}

void read_text(const JsonFields& json, ModelConfig& config) {
  const bool routed = config.architecture == "qwen35moe";
  read_qwen_linear(json, config, routed ? "moe_intermediate_size" : "intermediate_size");
  if (!routed) return;
  config.experts = read_experts(json, "num_experts");
  config.experts->shares_sum_to_1 = true;
  read_shared_expert(json, config);
}

void read(const JsonFields& json, ModelConfig& config) {
  const auto text = json.child("text_config");
  read_text(text ? *text : json, config);
  config.tied_head = json.flag("tie_word_embeddings", *config.tied_head);
}

constexpr std::string_view kTypes[] = {"qwen3_5", "qwen3_5_text"},
                           kRoutedTypes[] = {"qwen3_5_moe", "qwen3_5_moe_text"};
constexpr std::string_view kPrefixes[] = {"model.", "model.language_model.", "language_model.model."};

}  // namespace
}  // namespace kvtide::qwen3_5

namespace kvtide {

const Architecture kQwen35{"qwen35",        &qwen3_5::adjust, kQwenLinearGgufTensors,  //
                           qwen3_5::kTypes, &qwen3_5::read,   kQwenLinearFolderTensors, qwen3_5::kPrefixes};
const Architecture kQwen35Moe{"qwen35moe",           &qwen3_5::adjust_routed, kQwenLinearGgufTensors,
                              qwen3_5::kRoutedTypes, &qwen3_5::read,          kQwenLinearFolderTensors,
                              qwen3_5::kPrefixes};

}  // namespace kvtide
