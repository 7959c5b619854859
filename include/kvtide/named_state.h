// named_state.h: a KV memory as named tensors, with no model in sight: what programs that run exported models
// keep between two calls, with its position, its transitions and its snapshots.
//
//   const KvShape shape = {.layers = 18, .kv_heads = 1, .capacity = 256, .head_dim = 256};
//   NamedState state = make_state(unified_spec(shape));
//   state.append(3, [&](const Row& row) { ... fill row.key and row.value ... });
//   state.apply(Expand{512});                            // "kv_cache" is now [36, 1, 512, 256]
//   std::vector<std::byte> kv = state.read("kv_cache");  // row i is position i; rows nobody wrote are zeros
//
// Ownership: a NamedState owns its rows; fork() shares those of the past.
// Thread rules: one thread at a time per state; forks are independent.
// Invariants
//   1. A state owns its position: nothing outside advances it, and every change takes part in all tensors or
//      in none.
//   2. Elements that nobody wrote are zeros.
//   3. Plain arrays hold rows as they are seen, oldest first. What they cannot say (a window that has moved
//      on, a gap, moved rows) is refused, or reported when exact_only asks for the rest.
// Units: bytes as they lie in memory, little endian, C order. A row of q8_0 is head_dim / 32 blocks of an f16
// scale and 32 signed bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvtide/transition.h"
#include "kvtide/types.h"

namespace kvtide {

enum class TensorRole {
  keys_and_values,  // [2 * layers, kv_heads, capacity, head_dim]: the keys of every layer, then the values
  keys,       // [1, kv_heads, capacity, head_dim] of one layer, or [layers, 1, kv_heads, capacity, head_dim]
  values,     // the same, for the same layers: the n-th tensor of values belongs to the n-th of keys
  position,   // [1] i32: the state's position; read only
  recurrent,  // any shape, no sequence axis: replaced as a whole, never resized
};

struct TensorSpec {
  std::string name;
  TensorRole role = TensorRole::keys_and_values;
  std::vector<std::int64_t> shape;
  ElementType type = ElementType::f16;
  // Newest positions that its layers see, and all that the tensor holds: its capacity. nullopt: everything.
  std::optional<std::int64_t> window = std::nullopt;
};

struct StateSpec {
  std::vector<TensorSpec> tensors;
  std::int64_t slack = 0;          // newest positions that truncate can always take back
  std::optional<Rolling> rolling;  // forget all but sinks and a window
  // How keys are rotated: radians per position of the pairs (i, i + frequencies.size()). Empty: positions are
  // absolute, and rows cannot be seen from another distance.
  std::vector<double> frequencies;
  // Whose rows these are: what Model::identity says as "model". Kept by forks and in files. Empty: not said.
  std::string model;
};

// The usual layouts. Layers with a window of their own: windows[layer]; an empty list: none has one.
struct KvShape {
  std::int64_t layers = 0, kv_heads = 0, capacity = 0, head_dim = 0;
  // Equal where one tensor holds keys and values.
  ElementType key_type = ElementType::f16, value_type = ElementType::f16;
  std::vector<std::optional<std::int64_t>> windows = {};
};
StateSpec unified_spec(const KvShape& shape);    // kv_cache
StateSpec split_spec(const KvShape& shape);      // kv_cache_local, kv_cache_global
StateSpec per_layer_spec(const KvShape& shape);  // layers.I.k_state, layers.I.v_state
StateSpec stacked_spec(const KvShape& shape);    // keyCache, valueCache, pastLen

// The row of one token to be filled. Not filled, it is zeros.
struct Row {
  std::int64_t layer, kv_head, token;  // token: of those that are appended, from 0
  std::span<float> key, value;         // [head_dim]
};

// A run of rows of one layer of a tensor, where they lie. Valid until the state changes; appending keeps it
// valid.
struct TensorView {
  std::int64_t block = 0;                        // index into the tensor's first axis that has layers
  Pos first = 0;                                 // position of row 0, as it is seen
  std::int64_t kv_heads = 0, rows = 0;           // [kv_heads][rows], each row head_dim elements
  std::int64_t head_stride = 0, row_stride = 0;  // bytes
  const std::byte* data = nullptr;
};

struct TensorBytes {
  std::string_view name;
  std::span<const std::byte> bytes;  // of the whole tensor
};

struct ReadTensor {
  std::optional<ElementType> type;  // f32 or f16; nullopt: the tensor's own
  bool exact_only = false;          // leave out rows that a plain array cannot say; false: refuse them
};

struct TensorRead {
  std::vector<std::byte> bytes;
  PosRange rows;           // positions of rows [0, rows.size()) of the array; the rest is zeros
  Pos left_out = 0;        // positions below this one were read and are not in the array
  std::int64_t moved = 0;  // rows that were written elsewhere; their keys are rotated to where they are seen
};

class NamedState {
 public:
  ~NamedState();
  NamedState(NamedState&&) noexcept;
  NamedState& operator=(NamedState&&) noexcept;

  // As it is now: transitions change capacities.
  StateSpec spec() const;
  Pos position() const;           // of the next token
  std::int64_t rows() const;      // positions held
  std::int64_t capacity() const;  // 0: no tensor has a sequence axis
  std::int64_t room() const;
  std::optional<std::int64_t> attention_size() const;
  std::int64_t held_bytes() const;      // in memory
  std::int64_t shared_bytes() const;    // of these, shared with forks
  std::int64_t capacity_bytes() const;  // when it is full

  // One tensor as an array. Throws Error(invalid_argument): no such tensor; rows that the array cannot say.
  std::vector<std::byte> read(std::string_view name) const { return read_tensor(name, {}).bytes; }
  TensorRead read_tensor(std::string_view name, const ReadTensor& options) const;

  // The rows of a tensor without a copy, block by block and oldest first: one view a block when the state was
  // never forked, loaded with gaps or cut. Moved rows are as they were written. Only tensors of keys and
  // values.
  std::vector<TensorView> views(std::string_view name) const;

  // Replaces what the state holds: `position` tokens were read, and these are the tensors, all of them but
  // those of the role position. Row i of an array is position i; an array of a window that has moved on ends
  // with position - 1. The attention size stays. Throws Error(invalid_argument) and changes nothing: a tensor
  // is missing, unknown or of another size; NaN or infinity; more positions than fit.
  void write(std::span<const TensorBytes> tensors, Pos position);
  // One recurrent tensor, for the position the state is at.
  void write_recurrent(std::string_view name, std::span<const std::byte> bytes);

  // Adds tokens: fill is called for every row. Throws Error(context_full) when they do not fit; what fill
  // throws leaves the state as it was.
  void append(std::int64_t tokens, const std::function<void(const Row&)>& fill);

  TransitionPlan plan(const Transition& transition) const;
  TransitionRecord apply(const Transition& transition);  // throws Error(invalid_argument) with the refusal
  NamedState fork() const;

  // As a file (docs/snapshot_format.md), atomically; a file of a state of other tensors is refused, and of another
  // model where this state says its own.
  void save(const std::string& path) const;
  void load(const std::string& path);

 private:
  struct Impl;
  explicit NamedState(std::unique_ptr<Impl> impl);
  friend NamedState make_state(const StateSpec& spec);
  std::unique_ptr<Impl> impl_;
};

// A state of zeros at position 0. Throws Error(invalid_argument) naming the tensor that makes no sense.
NamedState make_state(const StateSpec& spec);

}  // namespace kvtide
