// decoder.h: the forward pass: tokens in, normed hidden rows out, keys and values into the state on the way.
//
// One pass over the layers that reads top to bottom; architectures differ only in what ModelConfig says.
// The result of a token depends on the tokens before it and on nothing else: not on the chunk it travels in,
// not on the number of threads (docs/architecture.md, idea 4).
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/decoder_context.h"
#include "model/workspace.h"
#include "state/state.h"

namespace kvtide {

// What a pass reads for one text.
struct PassPart {
  KvState& state;
  std::span<const TokenId> tokens;  // at least one
  std::int64_t wanted = 0;          // hidden rows that come back: those of the last so many tokens
  // Of guesses: says, from the wanted rows, how many of the tokens, at least one, become part of the state.
  std::function<std::int64_t(std::span<const float> hidden)> keep = {};
  Shadow* shadow = nullptr;  // compares attention with what it would be over everything; changes no result
  Repetition* repetition = nullptr;  // of what is read again: then nothing becomes part of the state
};

// What became of it.
struct PassRows {
  std::span<const float> hidden;  // [wanted][width] inside the workspace, valid until its next use
  std::string not_finite;  // why the state is as it was: its activations are no longer finite; else empty
  std::exception_ptr failure =
      nullptr;  // why it is as it was: memory ended in the last step, of this part alone
};

// One pass over the weights for all parts (together at most the workspace's max_step): appends the tokens of each to
// its state. A part's rows are the same bits as those of a pass of its own. Throws Error: context_full,
// invalid_argument (a token id outside the vocabulary); then every state is as it was.
std::vector<PassRows> forward(const DecoderContext& context, Workspace& workspace,
                              std::span<const PassPart> parts);

// The same for one text. Throws Error(numeric) as well.
std::span<const float> forward(const DecoderContext& context, Workspace& workspace, const PassPart& part);

// logits[rows][vocab] of `rows` normed hidden rows.
void logits(const DecoderContext& context, Workspace& workspace, const float* hidden, std::int64_t rows,
            float* out);

}  // namespace kvtide
