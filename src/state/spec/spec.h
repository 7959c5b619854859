// spec.h: what a KV state is made from, as plain data. No model, no file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvtide/transition.h"
#include "kvtide/types.h"
#include "state/spec/procedural_spec.h"
#include "tensor/dtype.h"

namespace kvtide {

struct LayerSpec {
  int kv_heads = 0;
  int head_dim = 0;
  std::optional<std::int64_t> window;  // positions a query sees, its own included; nullopt: all
  // How keys are rotated: radians per position of the pairs (i, i + frequencies.size()). Needed only to say
  // where a moved key would stand; empty: not known, or positions are absolute.
  std::vector<double> frequencies = {};
  // A value is its key as well, and so is kept once: of latents (model/latent.h), whose readers leave out the part that
  // is rotated. Needs keys and values of one type; a procedural memory keeps both.
  bool values_in_keys = false;
};

// A tensor without a sequence axis, replaced as a whole (recurrent.h).
struct RecurrentSpec {
  std::string name;
  DType dtype = DType::f32;  // f32 or f16
  std::vector<std::int64_t> shape;
};

struct KvSpec {
  std::vector<LayerSpec> layers;  // may be empty beside recurrent tensors
  DType key_type = DType::f16;    // f32, f16, q8_0 or q4_0 (both: head_dim a multiple of 32)
  DType value_type = DType::f16;
  std::int64_t capacity = 0;  // rows the state may hold
  std::int64_t max_step = 1;  // tokens of the largest step
  std::int64_t slack = 0;  // positions that truncate can always take back, also where a window has moved on
  std::optional<Rolling> rolling;                 // layers with a window of their own keep that instead
  std::optional<ProceduralSpec> procedural = {};  // likewise
  std::vector<RecurrentSpec> recurrent = {};
  Checkpoints checkpoints = {};
  // Positions that the model has; nullopt: any number. Known to a session, not kept in files.
  std::optional<std::int64_t> positions = {};
  bool rotary = true;  // keys are rotated by position: only then can rows be seen from another distance
};

// How the layers without a window lie: what a procedural memory compresses. There must be layers.
inline const LayerSpec& whole_layer(const std::vector<LayerSpec>& layers) {
  for (const LayerSpec& layer : layers)
    if (!layer.window) return layer;
  return layers.front();
}

// Do keys and values lie as their Hadamard transforms (kernels/hadamard.h)? Four bits hold no others.
inline bool is_spread(const KvSpec& spec) {
  return spec.key_type == DType::q4_0 || spec.value_type == DType::q4_0;
}

// Does a row of this layer lie there once, as key and as value?
inline bool keeps_rows_once(const KvSpec& spec, const LayerSpec& layer) {
  return layer.values_in_keys && spec.key_type == spec.value_type && !spec.procedural;
}

// Throws Error(invalid_argument) naming the first rule that the spec breaks.
void check(const KvSpec& spec);

// What the state's procedural memory is made from: blocks are sealed late by the slack, so that its tokens
// can be taken back.
ProceduralSpec memory_spec(const KvSpec& spec);

}  // namespace kvtide
