// shard.h: one piece of a model that was split into files, driven the way exported shards are: activations,
// rope tables and masks go in, activations come out, and the keys and values stay in a state of the shard.
//
//   ShardFolder folder("shards");                     // manifest.json, checked
//   Shard attention = folder.open("attention.0");
//   ShardState state = attention.make_state();        // one per shard and sequence
//   std::vector<float> hidden = attention.predict({x, cosine, sine, attention_mask, write_mask}, state);
//
// A call carries T tokens at once, each in a column of its own; T is 1 to t_max. A column of an attention
// shard is active when the write mask stores its key and value in a slot. The active columns come first. When
// the state holds n positions, the write mask must put column t into slot n + t, and the attention mask must
// show it the slots lo to n + t, where lo is the caller's choice. Other masks are refused with the number of
// the slot. So are two mistakes that only show in later tokens: a mask that shows a column nothing but its own
// slot, and rope rows of another position than the slot's. truncate(n) takes a rejected draft back. Slots that
// no column sees may hold anything, NaN included. The router of a moe shard adds its own numbers to those of the moe shard in the layer before. So
// the caller hands these numbers on beside the activations (`router` of predict).
// Ownership: a Shard owns its weights and shares the threads of its folder; a ShardState owns its arrays.
// Thread rules: one call at a time among the shards of one folder.
// Invariants
//   1. A call that throws has changed nothing.
//   2. A column's result is the same bits whatever T is and whatever the other columns hold.
//   3. A state is used with the shard that made it, or with the same shard opened again.
// Units: arrays in C order, float32; x and hidden [1, D, T, 1] have channels first. What each kind of shard
// computes: docs/shards.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvtide/named_state.h"
#include "kvtide/types.h"

namespace kvtide {

enum class ShardKind { embedding, attention, mlp, moe, head };
const char* shard_kind_name(ShardKind kind) noexcept;

struct ShardInfo {
  std::string name;  // "attention.0"
  ShardKind kind = ShardKind::attention;
  std::string file;                         // in the folder
  std::int64_t bytes = 0;                   // of the file
  int layer = 0;                            // of attention, mlp and moe
  int rope = 0;                             // of attention: which rope table its columns want
  std::optional<std::int64_t> window;       // of attention: newest slots a column may see; nullopt: all
  TokenId vocab_first = 0, vocab_last = 0;  // of a head: [first, last)
};

struct ShardInputs {
  std::span<const float> x;                   // [1, D, T, 1]
  std::span<const float> rope_cos, rope_sin;  // [T, rope_half]; empty where nothing is rotated
  std::span<const float> attention_mask;      // [1, 1, T, S]: 0 visible, -1e4 or less hidden
  std::span<const float> write_mask;          // [1, 1, S, T]: 0 or 1
  // The caller means it: columns that see their own slot only (layers with a window may have such), and rope
  // rows of other positions than n + t.
  bool hides_past = false, other_positions = false;
};

class ShardState {
 public:
  struct Tensor {
    std::string name;  // "k_state", "v_state"; "conv_state", "prev_value"
    std::vector<std::int64_t> shape;
    ElementType type = ElementType::f16;
    std::span<std::byte> bytes;
  };

  ~ShardState();
  ShardState(ShardState&&) noexcept;
  ShardState& operator=(ShardState&&) noexcept;

  const std::string& shard() const;  // that it belongs to
  std::int64_t slots() const;        // S
  Pos position() const;              // n: slots [0, n) are committed
  // Forgets the positions from n on. Throws Error(invalid_argument) for n beyond position(); of a shard that
  // convolves queries and keys also for more than the newest t_max positions (but 0 always works).
  void truncate(Pos n);
  // The arrays where they lie: k_state and v_state [1, kv_heads, S, head_dim], f16; where queries and keys
  // are convolved also conv_state [1, channels, 2] (older column first) and prev_value [1, kv_heads *
  // head_dim / 2], f32: what the newest column left for the next.
  std::span<const Tensor> tensors() const;
  std::int64_t bytes() const;

  struct Impl;
  explicit ShardState(std::unique_ptr<Impl> impl);
  Impl& internals() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

struct ShardOptions {        // change only speed
  int threads = 0;           // 0: as many as the machine has
  std::string kernels = {};  // empty: the best table
};

class Shard {
 public:
  // Throws what ShardFolder and its open() throw.
  static Shard open(const std::string& folder, const std::string& name, const ShardOptions& options = {});
  ~Shard();
  Shard(Shard&&) noexcept;
  Shard& operator=(Shard&&) noexcept;

  const ShardInfo& info() const;
  std::int64_t weights_bytes() const;  // in memory

  // Throws Error(unsupported) unless this is an attention shard.
  ShardState make_state() const;
  // Of an attention shard: hidden [1, D, T, 1], zeros in columns that are not active. The state then holds
  // one more position for each active column. Throws Error: invalid_argument (shapes, masks, rope rows of
  // other positions, another shard's state), context_full, numeric (x, rope tables or results that are not finite).
  std::vector<float> predict(const ShardInputs& inputs, ShardState& state) const;
  // Of an mlp shard: hidden [1, D, T, 1]; of a head shard: the logits of its tokens [1, tokens, T, 1].
  std::vector<float> predict(std::span<const float> hidden) const;
  // Of a moe shard: hidden [1, D, T, 1]. router [1, router_width, T, 1]: what the moe shard of the layer
  // before left there, replaced by what this one leaves; before layer 0 it may hold anything.
  std::vector<float> predict(std::span<const float> hidden, std::span<float> router) const;
  // Of the embedding: x [1, D, T, 1] of T tokens at the positions first, first + 1, ...
  std::vector<float> predict(std::span<const TokenId> ids, Pos first) const;

  struct Impl;
  explicit Shard(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// How a model is split.
struct ShardExport {
  enum class Type { f16, int8 };
  enum class Scales { tensor, channel };  // of int8: one for a matrix, or one for each of its outputs

  Type type = Type::f16;
  Scales scales = Scales::channel;
  std::int64_t min_elements = 2048;        // smaller matrices stay f16
  std::vector<std::string> keep_f16 = {};  // "query", or "attention.3/query" of one shard
  std::optional<std::int64_t> slots =
      std::nullopt;  // S; nullopt: 2048, or fewer where fewer positions were learned
  int head_shards = 1;
  int threads = 0;  // changes only speed; 0: as many as the machine has
  std::function<void(const ShardInfo&)> on_shard =
      {};  // told after each file; what it throws ends the export
};

// `model`: a GGUF file or a Hugging Face folder; `folder`: does not exist, or is empty; it appears complete
// or not at all. Throws Error: invalid_argument (the folder holds something, names in keep_f16 that no matrix
// has, more heads than the vocabulary allows), unsupported (an architecture whose layers are none of the
// kinds above), numeric (a weight that f16 cannot hold), io, and what loading a model throws.
void export_shards(const std::string& model, const std::string& folder, const ShardExport& options = {});

class ShardFolder {
 public:
  // Reads and checks manifest.json: layers and vocabulary without gaps and overlaps, shapes, types, and that
  // every file is there with its size. Throws Error: not_found, bad_format, unsupported (kinds of shards that
  // this version does not run).
  explicit ShardFolder(const std::string& path, const ShardOptions& options = {});
  ~ShardFolder();
  ShardFolder(ShardFolder&&) noexcept;
  ShardFolder& operator=(ShardFolder&&) noexcept;

  const std::vector<ShardInfo>& shards() const;
  // Loads a shard; its file must have the checksum and the tensors that the manifest says. Throws Error:
  // invalid_argument (no such shard), not_found, bad_format, numeric.
  Shard open(const std::string& name) const;

  std::int64_t width() const;  // D
  std::int64_t vocabulary() const;
  int layers() const;
  std::int64_t slots() const;  // S
  // Of one sequence with so many slots (0: S): what the states of all attention shards take once they are made.
  std::int64_t state_bytes(std::int64_t slots = 0) const;
  std::int64_t t_max() const;         // most columns of a call
  std::int64_t rope_half() const;     // columns of the rope tables; 0: nothing is rotated
  int ropes() const;                  // kinds of rope tables
  std::int64_t router_width() const;  // channels that moe shards hand on; 0: there are none
  // Rows of rope table `rope` for the positions first .. first + count - 1: [count, rope_half] each.
  void rope_rows(int rope, Pos first, std::int64_t count, std::span<float> cosine,
                 std::span<float> sine) const;

  struct Impl;
  const Impl& internals() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace kvtide
