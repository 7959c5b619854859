// state.h: the KV memory of one text: what a model has read, as cached keys and values of every layer.
//
// A state stands alone: it is built from a plain StateSpec, with no model, file or tokenizer in sight. It
// owns its position: the number of tokens appended. Appending takes two steps: begin(T) opens rows for T
// tokens, each layer writes and attends to them, commit() advances the position. A step that is dropped
// leaves the state as it was. Ownership: owns its memory; movable. Thread rules: one writer at a time;
// different (layer, head, token) rows of a step may be written from different threads. Invariants
//   1. Keys and values of a committed position never change while it can still be seen.
//   2. Rows that were never written are zeros.
//   3. RAM follows use: address space is reserved for `capacity` rows, pages are taken when rows are written.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "kernels/elementwise.h"
#include "kernels/span.h"
#include "kvtide/types.h"
#include "tensor/dtype.h"

namespace kvtide {

struct LayerSpec {
  int kv_heads = 0;
  int head_dim = 0;
  std::optional<std::int64_t> window;  // positions a query sees, its own included; nullopt: all
};

struct StateSpec {
  std::vector<LayerSpec> layers;
  DType key_type = DType::f16;  // f16 or f32
  DType value_type = DType::f16;
  std::int64_t capacity = 0;    // tokens the state can hold
  std::int64_t max_append = 1;  // tokens of the largest step
};

// The bytes that one more token costs in layers that keep everything, and the bytes of `tokens` tokens in
// all.
std::int64_t bytes_per_token(const StateSpec& spec);
std::int64_t bytes_for_tokens(const StateSpec& spec, std::int64_t tokens);

class KvState {
 public:
  // Throws Error: invalid_argument (a spec that makes no sense), out_of_memory.
  explicit KvState(StateSpec spec);

  const StateSpec& spec() const { return spec_; }
  Pos position() const { return position_; }
  std::int64_t capacity() const { return spec_.capacity; }
  // Bytes of the pages that hold written rows: what RSS is compared with.
  std::int64_t held_bytes() const;

  class Step {
   public:
    Pos first() const { return first_; }
    std::int64_t tokens() const { return tokens_; }
    // Stores the key and value [head_dim] of one token of the step, converted to the state's types.
    void write(const ElementwiseRow& kernels, int layer, int kv_head, std::int64_t token, const float* key,
               const float* value);
    // What the step's queries read: the rows of earlier positions that they can see, and the step's own.
    std::vector<Span> spans(int layer, int kv_head) const;
    // Makes the step part of the state.
    void commit();

   private:
    friend class KvState;
    Step(KvState& state, std::int64_t tokens) : state_(state), first_(state.position_), tokens_(tokens) {}
    KvState& state_;
    Pos first_;
    std::int64_t tokens_;
  };

  // Throws Error(context_full) when `tokens` more do not fit, Error(invalid_argument) outside [1,
  // max_append].
  Step begin(std::int64_t tokens);

  // Forgets everything; gives the memory back.
  void clear();

 private:
  struct Layer {
    std::optional<std::int64_t> ring;       // rows of the ring; nullopt: full
    std::int64_t key_row, value_row;        // bytes
    std::int64_t key_region, value_region;  // bytes reserved per head, whole pages
    Buffer memory;                          // [kv_heads] key regions, then [kv_heads] value regions
  };
  std::byte* key_region(const Layer& layer, int kv_head) const;
  std::byte* value_region(const Layer& layer, int layer_heads, int kv_head) const;

  StateSpec spec_;
  std::vector<Layer> layers_;
  Pos position_ = 0;
};

}  // namespace kvtide
