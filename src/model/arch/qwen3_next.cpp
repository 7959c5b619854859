// qwen3_next.cpp: Qwen 3 Next: gated delta nets, gated attention, and experts of which one serves every token
// (qwen_linear.h). Projections of a delta net lie key head by key head.
#include "model/arch/architectures.h"
#include "model/arch/qwen_linear.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide::qwen3_next {
namespace {

void adjust(const GgufFile& file, ModelConfig& config) {
  read_qwen_linear(file, config);
  config.experts = read_experts(file);
  config.experts->shares_sum_to_1 = true;
  read_shared_expert(file, config);
}

void read(const JsonFields& json, ModelConfig& config) {
  read_qwen_linear(json, config, "intermediate_size");
  config.experts = read_experts(json, "num_experts");
  config.experts->shares_sum_to_1 = json.flag("norm_topk_prob", true);
  read_shared_expert(json, config);
  read_routed_layers(json, config);
}

constexpr std::string_view kTypes[] = {"qwen3_next"};

}  // namespace
}  // namespace kvtide::qwen3_next

namespace kvtide {

const Architecture kQwen3Next{"qwen3next",        &qwen3_next::adjust, kQwenLinearGgufTensors,
                              qwen3_next::kTypes, &qwen3_next::read,   kQwenLinearFolderTensors};

}  // namespace kvtide
