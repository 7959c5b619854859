// state.h: a KV memory as an object of its own: hold it, look at its rows, resize it, carry it.
//
//   State state = State::load("book.kv");
//   state.apply(Compact{.capacity = 4096});
//   const RowsView keys = state.view(0, KvPart::keys, state.runs(0).back());
//
// A session's memory is a State too (Session::state); it is changed through its session, so that the tokens
// go along.
// Ownership: owns its rows; forks and views share them.
// Thread rules: one thread at a time; forks are independent of each other.
// Invariants
//   1. What a view shows never changes while it lives, but for a truncate or drop of the rows it shows: their
//      bytes then read as zeros or what is appended in their place. It may outlive the state.
//   2. tokens() is as long as position(), or empty when nobody said which tokens the rows belong to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvtide/transition.h"
#include "kvtide/types.h"

namespace kvtide {

enum class KvPart { keys, values };

struct StateLayer {
  int kv_heads = 0;
  int head_dim = 0;
  std::optional<std::int64_t> window;  // positions a query sees, its own included; nullopt: all
  friend bool operator==(const StateLayer&, const StateLayer&) = default;
};

struct StateShape {
  std::vector<StateLayer> layers;
  ElementType key_type = ElementType::f16;
  ElementType value_type = ElementType::f16;
  std::int64_t capacity = 0;       // rows the state may hold
  std::int64_t slack = 0;          // newest positions that truncate can always take back
  Checkpoints checkpoints = {};    // where it can go back further
  std::optional<Rolling> rolling;  // forget all but sinks and a window; nullopt: keep everything
  bool rotary = true;              // keys are rotated by position: only then can a gap be closed
};

// The rows of one layer that lie in one piece: row r of head h begins at data + h * head_stride +
// r * row_stride. Units: bytes.
struct RowsView {
  const std::byte* data = nullptr;
  PosRange positions;
  int kv_heads = 0;
  std::int64_t row_bytes = 0;
  std::int64_t head_stride = 0;
  std::int64_t row_stride = 0;      // row_bytes, or more in a procedural state
  std::shared_ptr<const void> pin;  // the memory stays while this lives
};

// A tensor without a sequence axis that goes along with every token: what the convolutions of a layer saw.
struct CarriedTensor {
  std::string name;  // "layers.3.conv_state"
  std::vector<std::int64_t> shape;
  std::vector<float> values;  // at position(); the last extent fastest
};

// From where on a layer's rows are seen as they were written, so that plain arrays can hold them.
struct PlainRows {
  Pos first = 0;    // positions [first, position()) are held and plain
  std::string why;  // what happened to the positions before; "" when there are none
};

class State {
 public:
  struct Impl;  // internals, for the engine

  // An empty state. Throws Error: invalid_argument (a shape that makes no sense), out_of_memory.
  explicit State(const StateShape& shape);
  // A state that holds positions [first_of_layer, position) as zeros, to be filled with write().
  // windows_only: layers with a window hold no more than that. tokens: what was read, or empty.
  State(const StateShape& shape, Pos position, std::vector<TokenId> tokens, bool windows_only = false);
  // A snapshot (docs/snapshot_format.md). Throws Error: not_found, io, bad_format, unsupported,
  // out_of_memory.
  static State load(const std::string& path);
  explicit State(std::unique_ptr<Impl> impl);
  ~State();
  State(State&&) noexcept;
  State& operator=(State&&) noexcept;

  StateShape shape() const;
  Pos position() const;                                // of the next token
  std::int64_t rows() const;                           // positions held, by the layer that holds most
  std::int64_t capacity() const;                       // rows it may hold
  std::optional<std::int64_t> attention_size() const;  // newest positions a query sees; nullopt: all
  std::int64_t held_bytes() const;                     // pages of the rows held
  std::int64_t shared_bytes() const;                   // of these, shared with forks
  std::int64_t capacity_bytes() const;                 // what it holds when it is full
  // Bytes that a procedural memory never exceeds; 0: it has no budget. nullopt: no procedural memory.
  std::optional<std::int64_t> budget() const;
  const std::vector<TokenId>& tokens() const;
  std::span<const float> logits() const;                       // after the last token; empty: not known
  const std::map<std::string, std::string>& identity() const;  // what the rows belong to; empty: not known
  void set_identity(std::map<std::string, std::string> identity);

  // Positions that can be gone back to although a window has moved on since, or what layers carry was replaced;
  // ascending. checkpoint() makes one here; false: the budget has no room, or such a memory cannot have one.
  const std::vector<Pos>& checkpoints() const;
  std::int64_t checkpoint_bytes() const;  // of held_bytes(), kept for them only
  bool checkpoint();

  TransitionPlan plan(const Transition& transition) const;
  // Throws Error(invalid_argument) with the refusal, and for a plan made before the state changed. Taking
  // back positions takes back tokens, and logits.
  TransitionRecord apply(const TransitionPlan& plan);
  TransitionRecord apply(const Transition& transition) { return apply(plan(transition)); }
  // A second state with the same contents. Rows are shared until one of the two writes.
  State fork() const;
  // Saved atomically. Throws Error(io); an older file is then untouched.
  void save(const std::string& path) const;

  // Positions that a layer holds, ascending; each run lies in one piece of memory.
  std::vector<PosRange> runs(int layer) const;
  // Throws Error(invalid_argument) unless `positions` lie in one run of the layer.
  RowsView view(int layer, KvPart part, const PosRange& positions) const;
  PlainRows plain_rows(int layer) const;
  // The rows as floats, [kv_heads][positions][head_dim]; positions the layer does not hold are zeros.
  void read(int layer, KvPart part, const PosRange& positions, std::span<float> rows) const;
  // Replaces rows of a state that was made with a position; encoded to the state's types. Throws
  // Error(invalid_argument): positions that the layer does not hold, rows that others see as well; numeric
  // for NaN or infinity.
  void write(int layer, KvPart part, const PosRange& positions, std::span<const float> rows);
  // The same from rows in the state's own type.
  void write_raw(int layer, KvPart part, const PosRange& positions, std::span<const std::byte> rows);

  // What the state holds beside rows; empty for most models.
  std::vector<CarriedTensor> carried() const;

  Impl& internals() { return *impl_; }
  const Impl& internals() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvtide
