// architectures.h: the list of architectures, one file each in this folder. To add one: a file and a line
// here.
#pragma once

#include "model/config.h"

namespace kvtide {

extern const Architecture kLlama;  // Llama 2 and 3, SmolLM2, Mistral
extern const Architecture kGemma3;
extern const Architecture kQwen2;
extern const Architecture kQwen3;

inline constexpr const Architecture* kArchitectures[] = {&kLlama, &kGemma3, &kQwen2, &kQwen3};

}  // namespace kvtide
