// phi3.cpp: Phi 3 and 4 (mini). What differs from Llama: queries, keys and values lie in one tensor, gate and
// up in another; halves rotate together, in some models those of a part of the head.
#include "model/arch/architectures.h"
#include "model/arch/tensor_names.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide::phi3 {
namespace {

void read(const JsonFields& json, ModelConfig& config) {
  read_llama_like(json, config);
  require_silu(json);
  config.ropes = {read_folder_rope(json, config, 10000.0)};
  read_windows(json, config, 0);
}

constexpr std::string_view kTypes[] = {"phi3"};

constexpr TensorRule fused(Role role, std::string_view name) {
  return {.role = role, .name = name, .fused = true};
}

constexpr TensorRule kGgufFused[] = {
    fused(Role::query, "blk.*.attn_qkv.weight"), fused(Role::key, "blk.*.attn_qkv.weight"),
    fused(Role::value, "blk.*.attn_qkv.weight"), fused(Role::gate, "blk.*.ffn_up.weight"),
    fused(Role::up, "blk.*.ffn_up.weight"),
};
constexpr auto kGguf = joined(kGgufFused, kGgufTensors);

constexpr TensorRule kFolderFused[] = {
    fused(Role::query, "model.layers.*.self_attn.qkv_proj.weight"),
    fused(Role::key, "model.layers.*.self_attn.qkv_proj.weight"),
    fused(Role::value, "model.layers.*.self_attn.qkv_proj.weight"),
    fused(Role::gate, "model.layers.*.mlp.gate_up_proj.weight"),
    fused(Role::up, "model.layers.*.mlp.gate_up_proj.weight"),
};
constexpr auto kFolder = joined(kFolderFused, kLlamaFolderTensors);

}  // namespace
}  // namespace kvtide::phi3

namespace kvtide {

const Architecture kPhi3{"phi3",       &read_one_window, phi3::kGguf,  //
                         phi3::kTypes, &phi3::read,      phi3::kFolder};

}  // namespace kvtide
