// engine_gate.h: what a model of the engine has to reach, by its arithmetic; and a text for it.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "eval/validate/validate.h"
#include "kvtide/session.h"

namespace kvtide {

// 0.9999 where everything is f32 but for f16 rows (SessionOptions::exact); 0.999 where attention multiplies
// bf16; 0.97 where products are those of 8-bit integers or rows are q8_0, and 0.90 then for special tokens
// and tiny embeddings. special: the vocabulary's markers.
ValidateOptions engine_gates(const Model& model, const SessionOptions& options);

// `tokens` tokens of made-up prose, behind the start token where the vocabulary wants one; of a vocabulary
// that cannot spell it, ids spread over all of it.
std::vector<TokenId> validation_text(const Model& model, std::int64_t tokens);

}  // namespace kvtide
