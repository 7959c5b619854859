// architectures.h: the list of architectures, one file each in this folder. To add one: a file and a line
// here.
//
// An architecture says, for each format it comes in, what differs from the common reading of the keys and
// under which names its tensors lie. The forward pass reads ModelConfig and asks for roles.
#pragma once

#include <span>
#include <string_view>

#include "base/json/json_fields.h"
#include "formats/gguf.h"
#include "model/config/config.h"
#include "model/config/tensor_rules.h"

namespace kvtide {

struct Architecture {
  std::string_view name;  // general.architecture in GGUF
  void (*adjust)(const GgufFile& file, ModelConfig& config);
  std::span<const TensorRule> gguf_tensors;

  std::span<const std::string_view> model_types;  // model_type in config.json
  void (*read)(const JsonFields& json, ModelConfig& config);
  std::span<const TensorRule> folder_tensors;
  // With which the names of a folder begin: as in the table, then what may stand instead. Empty: as they are.
  std::span<const std::string_view> folder_prefixes = {};
  // Of folders whose final norm has the name that this table gives it, and not that of the other.
  std::span<const TensorRule> older_folder_tensors = {};
  bool recurrent_only = false;  // no layer has attention or a feed-forward
  bool uneven = false;  // layers of a GGUF file may differ in KV heads and in the width of their feed-forward
  bool single_blocks = false;  // and those without a feed-forward say that it is 0 wide
};

extern const Architecture kLlama;  // Llama 2 and 3, SmolLM2, Mistral
extern const Architecture kGemma3;
extern const Architecture kQwen2;
extern const Architecture kQwen3;
extern const Architecture kGpt2;  // also what is trained in its shape, as zenz
extern const Architecture kZaya;  // ZAYA1
extern const Architecture kSmolLm3;
extern const Architecture kPhi3;   // and Phi 4 mini
extern const Architecture kOlmo2;  // and 3
extern const Architecture kMistral3;
extern const Architecture kQwen3Moe;
extern const Architecture kLfm2;
extern const Architecture kLfm2Moe;
extern const Architecture kQwen3Next;
extern const Architecture kQwen35;
extern const Architecture kQwen35Moe;
extern const Architecture kGptOss;
extern const Architecture kDeepseek;  // DeepSeek V3, GLM 4.7 Flash
extern const Architecture kMamba2;
extern const Architecture kGemma4;
extern const Architecture kNemotronH, kNemotronHMoe;
extern const Architecture kGranite, kGraniteMoe, kGraniteHybrid;  // Granite 3 and 4

inline constexpr const Architecture* kArchitectures[] = {
    &kLlama,         &kGemma3,    &kQwen2,     &kQwen3,       &kGpt2,   &kZaya,    &kSmolLm3,
    &kPhi3,          &kOlmo2,     &kMistral3,  &kQwen3Moe,    &kLfm2,   &kLfm2Moe, &kQwen3Next,
    &kQwen35,        &kQwen35Moe, &kGptOss,    &kDeepseek,    &kMamba2, &kGranite, &kGraniteMoe,
    &kGraniteHybrid, &kGemma4,    &kNemotronH, &kNemotronHMoe};

}  // namespace kvtide
