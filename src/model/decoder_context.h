// decoder_context.h: what a forward pass needs beside the state and the tokens.
//
// Ownership: refers to the model, the kernels and the threads of a session.
#pragma once

#include <functional>
#include <span>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "model/config/config.h"
#include "model/weights.h"

namespace kvtide {

class Shadow;
struct PassTimes;

struct DecoderContext {
  const ModelConfig& config;
  const Weights& weights;
  const Kernels& kernels;
  ThreadPool& pool;
  // Told the residual stream [rows][width] of the step behind the attention of every layer; may be empty.
  std::function<void(int layer, std::span<const float>)> on_residual = {};
  bool exact = false;          // f32 activations instead of 8-bit ones: changes results
  PassTimes* times = nullptr;  // takes the times of passes; nullptr: nobody asks
  // Shown the residual stream [rows][width] before every layer and, as one layer more than there are, behind
  // the last; it may put another in its place, so that layers can be judged one by one. May be empty.
  std::function<void(int layer, std::span<float>)> on_layer = {};
};

}  // namespace kvtide
