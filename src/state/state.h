// state.h: the KV memory of one text: what a model has read, as cached keys and values of every layer.
//
// A state stands alone: it is built from a plain KvSpec, with no model, file or tokenizer in sight. It owns
// its position: the number of tokens appended. Appending takes two steps: begin(T) opens rows for T tokens,
// each layer writes and attends to them, commit() advances the position. A step that is dropped leaves the
// state as it was.
// Ownership: movable; fork() shares the rows of the past and copies none.
// Thread rules: one thread at a time per state; different (layer, head, token) rows of a step may be written
// from different threads; forks are independent.
// Invariants
//   1. Keys and values of a committed position never change while it can still be seen.
//   2. Rows that were never written, or were taken back, read as zeros when they are opened.
//   3. RAM follows use: address space is reserved, pages are taken when rows are written and given back when
//      a window has moved past them.
//   4. What a query sees is a pure function of positions (arrange.h): never of chunking or of where rows lie.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/span.h"
#include "kvtide/state.h"
#include "kvtide/transition.h"
#include "state/arrange.h"
#include "state/auto_attention.h"
#include "state/checkpoints.h"
#include "state/procedural/memory.h"
#include "state/recurrent.h"
#include "state/rows/layer_rows.h"
#include "state/rows/row_span.h"
#include "state/spec/bytes.h"
#include "state/spec/spec.h"

namespace kvtide {

// Of all layers, and none yet.
std::vector<LayerRows> rows_of(const KvSpec& spec);

// Everything about a state but the bytes of its rows: what a snapshot's header says.
struct StateImage {
  KvSpec spec;
  Pos position = 0;
  std::optional<std::int64_t> attention_size;
  std::optional<AutoAttentionLog> adapting;  // what the attention size follows; nullopt: it stays
  std::vector<Segment> segments;
  std::vector<Pos> released, forgotten;  // per layer, as in KvState and Holdings
  Pos edited = 0;
  // Per layer: rows held, ascending and apart, wherever they lie
  std::vector<std::vector<PosRange>> runs;
  std::vector<Pos> recurrent = {};  // positions of which the recurrent tensors' values are kept
  std::vector<Pos> checkpoints = {};
  std::optional<ProceduralImage> past = {};  // of a procedural state
};

class KvState {
 public:
  // Throws Error: invalid_argument (a spec that makes no sense), out_of_memory.
  explicit KvState(const KvSpec& spec);
  // A state with the rows of `image` held but zero, to be filled through rows_of_head.
  // Throws Error(invalid_argument) when the image contradicts itself.
  explicit KvState(const StateImage& image);
  KvState(KvState&&) = default;
  KvState& operator=(KvState&&) = default;

  const KvSpec& spec() const { return spec_; }
  Pos position() const { return held_.position; }  // of the next token
  std::int64_t rows() const;                       // positions held, by the layer that holds most
  std::int64_t capacity() const { return spec_.capacity; }
  // Tokens that can still be appended; a rolling state never fills up.
  std::int64_t room() const;
  std::optional<std::int64_t> attention_size() const { return attention_size_; }
  const std::optional<AutoAttentionLog>& adapting() const { return adapting_; }
  // Tokens that one step may take: max_step, or fewer where the attention size may change or a checkpoint is made.
  std::int64_t step_room() const;
  const std::vector<Segment>& segments() const { return held_.segments; }
  const Holdings& holdings() const { return held_; }

  std::int64_t held_bytes() const;    // pages of held rows: what RSS is compared with
  std::int64_t shared_bytes() const;  // of these, shared with forks
  std::int64_t capacity_bytes() const { return bytes_for_tokens(spec_, spec_.capacity); }

  // Positions that can be gone back to, ascending: those of checkpoints.
  const std::vector<Pos>& checkpoints() const { return checkpoints_; }
  std::int64_t checkpoint_bytes() const;  // of what is held, kept for checkpoints only
  // Makes one here. False, and nothing has changed: its budget has no room for one, or positions cannot be taken back
  // (a procedural memory, a gap that was closed). True without one where every position can be gone back to.
  bool checkpoint();
  // From now on. Those that no longer fit go; their rows do in the next step.
  void set_checkpoints(const Checkpoints& checkpoints);
  // The largest position up to `length` that a truncate can leave behind.
  Pos nearest_to(Pos length) const;

  class Step {
   public:
    ~Step();
    Step(Step&& other) noexcept
        : state_(other.state_),
          first_(other.first_),
          tokens_(other.tokens_),
          guessed_(other.guessed_),
          again_(other.again_),
          far_shares_(std::move(other.far_shares_)) {
      other.state_ = nullptr;
    }
    Step& operator=(Step&&) = delete;

    Pos first() const { return first_; }
    std::int64_t tokens() const { return tokens_; }
    const KvState& state() const { return *state_; }  // as it is before the step
    // Stores the key and value [head_dim] of one token of the step, converted to the state's types.
    void write(const ElementwiseRow& kernels, int layer, int kv_head, std::int64_t token, const float* key,
               const float* value);
    // What the step's queries read, per KV head: the rows of earlier positions that they can see, and the
    // step's own. What none of them can see goes now, layer by layer: a full window takes the same memory at
    // every moment of a step.
    std::vector<std::vector<Span>> spans(int layer);
    // Says that a layer was attended to. A step that reads again then lets go of its rows there: it holds those of one
    // layer at a time.
    void leave(int layer);
    // The window of the step's queries in this layer.
    std::optional<std::int64_t> window(int layer) const;
    // Whether a procedural memory keeps the queries of a token of the step as references; if so it wants
    // every head's query before RoPE, and the log mass of every head's softmax.
    bool observes(int layer) const;
    bool observes(int layer, std::int64_t token) const;
    void observe_query(const Kernels& kernels, int layer, std::int64_t token, int head, const float* query);
    void observe_log_mass(int layer, std::int64_t token, const float* log_mass);
    // For an attention size that adapts itself: the tokens of the step whose far shares (far_share.h) it
    // wants to know, the distance from which on rows are far, whether a layer's heads count, and the answer:
    // parts per million, one per token, without which they count as nothing.
    std::vector<std::int64_t> sampled() const;
    std::int64_t near() const { return std::max<std::int64_t>(1, *state_->attention_size_ / 2); }
    bool is_measured(int layer) const;
    void measured(std::vector<std::int32_t> far_shares) { far_shares_ = std::move(far_shares); }
    // Tensors without a sequence axis (recurrent.h): what one holds after token `token` of the step. It wants
    // to know for the tokens from first_carried() on, so that they can be taken back.
    std::int64_t first_carried() const {
      return guessed_ ? 0 : std::max<std::int64_t>(0, tokens_ - 1 - state_->spec_.slack);
    }
    void carry(std::size_t tensor, std::int64_t token, std::span<const std::byte> value) {
      state_->recurrent_.stage(first_ + token + 1, tensor, value);
    }
    // The same in two steps: memory that is to be filled whole, and then said to be. Throws Error(numeric) as carry().
    std::span<std::byte> carry(std::size_t tensor, std::int64_t token) {
      return state_->recurrent_.stage(first_ + token + 1, tensor);
    }
    void carried(std::size_t tensor, std::int64_t token) {
      state_->recurrent_.check_staged(first_ + token + 1, tensor);
    }
    // Makes the step part of the state.
    void commit() { commit(tokens_); }
    // The same for the first `kept` tokens, at least one, of a step of guesses; the others leave nothing behind.
    void commit(std::int64_t kept);

   private:
    friend class KvState;
    Step(KvState* state, std::int64_t tokens, bool guessed)
        : state_(state), first_(state->position()), tokens_(tokens), guessed_(guessed) {}
    KvState* state_;  // nullptr: committed or moved from
    Pos first_;
    std::int64_t tokens_;
    bool guessed_;
    bool again_ = false;
    std::vector<std::int32_t> far_shares_;
  };

  // Of a procedural state, after every step: seals the oldest block of exact rows, or ends a stage
  // (procedural/stages.h), when the position is one at which that happens. A call in which memory ended
  // (std::bad_alloc) is made again before the next step.
  // tokens: all that were read.
  // repeat: reads the tokens of a block again where rows are ranked by that (begin_again); may be nullptr.
  using Repeat = std::function<const Repetition*(const PosRange& block)>;
  void seal_if_due(ThreadPool& pool, const Kernels& kernels, std::span<const TokenId> tokens,
                   const Repeat& repeat = nullptr);
  bool is_settled() const;  // was it called, and did it come to its end?
  // The next position at which it has something to do, and the last; shorter texts than that held other rows.
  Pos next_change() const;
  Pos last_change() const;
  // What the newest such call did.
  const std::vector<ProceduralEvent>& newest_changes() const { return changes_; }
  // Exact rows of a procedural state over all layers and heads that it compresses: sinks, or the others.
  std::int64_t exact_rows(bool sinks) const;
  // Likewise: the most that was ever held.
  std::int64_t bytes_peak() const { return std::max(bytes_peak_, held_bytes()); }
  // Since when it holds what it holds: after this position no more than 2 MiB, or 1/32, came on top.
  Pos steady_from() const { return steady_from_; }
  // Of a procedural state: positions that stay exact. Throws Error(invalid_argument), and changes nothing, for
  // what is summarised already and for what the budget cannot hold.
  void pin(const PosRange& range);
  // Of a procedural state: bytes that it never holds more than (0: any number), and the tokens that are
  // expected (ProceduralOptions). why_not_budget: "" when such a budget can hold it.
  std::string why_not_budget(std::int64_t bytes, Pos expected) const;
  void set_budget(std::int64_t bytes, Pos expected);  // throws Error(invalid_argument) with that refusal
  // Throws Error(context_full) when the budget has no room for `tokens` more.
  void check_budget(std::int64_t tokens) const;
  // The bytes that `tokens` more would need where they are more than the budget has; else 0.
  std::int64_t over_budget(std::int64_t tokens) const;
  const ProceduralMemory* past() const { return past_ ? &*past_ : nullptr; }
  ProceduralMemory* past() { return past_ ? &*past_ : nullptr; }

  // Throws Error(context_full) when `tokens` more do not fit, the budget included, Error(invalid_argument)
  // outside [1, step_room()]. Of a step of guesses only a beginning may become part of the state.
  Step begin(std::int64_t tokens, bool guessed = false);

  // A step that reads tokens of the past again, right behind the text, while a block is sealed: at most repeated_tokens()
  // (procedural/budget.h). Nothing observes it, and it is never committed.
  Step begin_again(std::int64_t tokens);

  TransitionPlan plan(const Transition& transition) const;
  // Throws Error(invalid_argument) for a refused plan and for one made before the state changed.
  TransitionRecord apply(const TransitionPlan& plan);
  // plan and apply in one; throws Error(invalid_argument) with the refusal.
  TransitionRecord apply(const Transition& transition) { return apply(plan(transition)); }

  // A second state with the same contents. Rows are shared until one of the two writes.
  KvState fork() const { return KvState(*this); }

  // Tokens of the largest step from now on: changes no result.
  void set_max_step(std::int64_t tokens) { spec_.max_step = tokens; }
  void set_positions(std::optional<std::int64_t> positions) { spec_.positions = positions; }

  // Forgets everything; gives the memory back.
  void clear();

  // Tensors without a sequence axis: their values at position().
  const RecurrentTensors& recurrent() const { return recurrent_; }
  RecurrentTensors& recurrent() { return recurrent_; }

  StateImage image() const;
  // Rows of one head that are neighbours in memory (LayerRows::runs).
  RowSpan rows_of_head(int layer, int kv_head, KvPart part, const PosRange& run);
  ConstRowSpan rows_of_head(int layer, int kv_head, KvPart part, const PosRange& run) const;
  // The rows of a layer, for looking at them.
  const LayerRows& layer_rows(int layer) const { return layers_[static_cast<std::size_t>(layer)]; }

 private:
  KvState(const KvState&) = default;
  void release(std::size_t layer, Pos end);
  void release_unseen(std::size_t layer);
  void drop_but_checkpoints(std::size_t layer, Pos from, Pos to);
  bool has_checkpoints() const;
  std::vector<Pos> with_checkpoint(Pos position) const;
  std::vector<Pos> released_behind(Pos length) const;
  bool holds(std::size_t layer, Pos first, Pos last) const;
  void release_sealed(std::size_t layer, Pos end);
  void seal_blocks(ThreadPool& pool, const Kernels& kernels, std::span<const TokenId> tokens,
                   const Repeat& repeat);
  void rewrite_rows(ThreadPool& pool, const RowStage& types);
  void drop_sealed(std::size_t layer, Pos until);
  void note_level();
  std::vector<VisibleRun> runs_of_step(int layer, Pos first, std::int64_t tokens) const;
  Visibility visible(std::size_t layer, std::optional<std::int64_t> attention_size) const;
  std::string why_not(const Transition& transition) const;  // "" when it can be made
  std::string why_not_back_to(Pos length) const;            // the same for truncate
  void perform(const Transition& transition);

  KvSpec spec_;
  std::vector<LayerRows> layers_;
  std::optional<ProceduralMemory> past_;
  Holdings held_;
  RecurrentTensors recurrent_;
  std::optional<std::int64_t> attention_size_;
  std::optional<AutoAttentionLog> adapting_;  // attention_size_ is what it says
  std::vector<Pos>
      released_;  // per layer: positions below, sinks apart, may be gone but for what checkpoints keep
  std::vector<Pos> checkpoints_;  // ascending
  bool sweeps_ = false;           // the next step lets go of what checkpoints kept that are gone
  std::vector<ProceduralEvent> changes_;
  bool changing_ = false;  // seal_if_due is to be called again
  std::int64_t bytes_peak_ = 0;
  std::int64_t steady_bytes_ = 0;
  Pos steady_from_ = 0;
  std::uint64_t generation_ = 0;  // changes with everything that makes an older plan wrong
};

}  // namespace kvtide
