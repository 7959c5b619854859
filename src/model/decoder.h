// decoder.h: the forward pass: tokens in, normed hidden rows out, keys and values into the state on the way.
//
// One pass over the layers that reads top to bottom; architectures differ only in what ModelConfig says.
// The result of a token depends on the tokens before it and on nothing else: not on the chunk it travels in,
// not on the number of threads (docs/architecture.md, idea 4).
#pragma once

#include <cstdint>
#include <span>

#include "model/decoder_context.h"
#include "model/workspace.h"
#include "state/state.h"

namespace kvtide {

// Appends `tokens` (at most the workspace's max_step) to the state and commits the step. The last `wanted`
// hidden rows come back, after the final norm: [wanted][width] inside the workspace, valid until its next
// use. Throws Error: context_full, invalid_argument (a token id outside the vocabulary), numeric (the
// activations are no longer finite). After an error the state is as it was.
std::span<const float> forward(const DecoderContext& context, Workspace& workspace, KvState& state,
                               std::span<const TokenId> tokens, std::int64_t wanted);

// logits[rows][vocab] of `rows` normed hidden rows.
void logits(const DecoderContext& context, Workspace& workspace, const float* hidden, std::int64_t rows,
            float* out);

}  // namespace kvtide
