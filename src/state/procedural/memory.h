// memory.h: the past of a procedural state: sealed blocks of every (layer, KV head), and what sealing needs.
//
// Positions [0, sinks) and the newest stay in the state's own rows; when window + block positions are exact,
// the oldest block is sealed: plain heads keep a few rows of it, full heads all of them (converted). Blocks
// are the same for all heads; old ones are consolidated, two into one. Ownership: copies share rows until
// one of the two seals. Thread rules: seal() alone; observe from different threads for different (layer,
// token).
// Invariants
//   1. Contents are a pure function of the tokens: sealing happens at fixed positions, with fixed references.
//   2. Tokens that the rows of a head stand for add up to the tokens that were sealed, but for counted
//      losses: audit() looks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/sole_owner.h"
#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kernels/span.h"
#include "state/procedural/head_rows.h"
#include "state/procedural/image.h"
#include "state/procedural/references.h"
#include "state/procedural/repetition.h"
#include "state/procedural/seal_head.h"
#include "state/procedural/spill.h"
#include "state/rows/layer_rows.h"
#include "state/spec/procedural_spec.h"

namespace kvtide {

// Address space of one head: no memory by itself.
inline constexpr std::int64_t kMostHeadRows = std::int64_t{1} << 21;

// Which references the heads need.
References::Shape reference_shape(const ProceduralSpec& spec, int head_dim);

class ProceduralMemory {
 public:
  struct LayerShape {
    int kv_heads = 0, head_dim = 0;
  };
  ProceduralMemory(const ProceduralSpec& spec, const std::vector<LayerShape>& layers);
  // Of the layers that are compressed, which all have the same.
  static int head_dim_of(const ProceduralSpec& spec, const std::vector<LayerShape>& layers);
  ProceduralMemory(const ProceduralMemory& other);
  ProceduralMemory(ProceduralMemory&&) noexcept = default;
  ProceduralMemory& operator=(ProceduralMemory&&) noexcept = default;

  const ProceduralSpec& spec() const { return spec_; }
  bool holds(int layer) const { return !spec_.plans[static_cast<std::size_t>(layer)].empty(); }
  // First position that is exact (sinks apart), and the position at which the next block is sealed.
  Pos exact_from() const { return sealed_; }
  PosRange next_block() const {
    const Pos last = sealed_ + spec_.block;
    return {first_sealed_before(spec_, last), last};
  }
  Pos next_seal() const { return sealed_ + spec_.block + spec_.window; }
  // Position after the last seal: shorter texts held other rows. Where stages end, many blocks are sealed at once.
  Pos last_seal() const {
    if (sealed_ == 0) return 0;
    return std::max(sealed_ + spec_.window, spec_.stages.empty() ? 0 : spec_.stages.back().until);
  }

  References& references() { return *references_; }
  void make_references_writable() {
    if (!sole_owner(references_)) references_ = std::make_shared<References>(*references_);
  }
  // Before a step that ends at `end`.
  void expect_references(Pos end) {
    make_references_writable();
    if (end > references_->shape().from) references_->begin();
  }
  const References& references() const { return *references_; }

  // Keeps positions exact in every head from now on. Throws Error(invalid_argument), and changes nothing, for
  // positions that are summarised already.
  void pin(const PosRange& range);

  // Seals the oldest block of exact rows of every layer; to be followed by settle(). Throws Error(io), and
  // changes nothing, when the spill file takes no more; std::bad_alloc likewise. `layers`: the state's own
  // rows, in which the block still stands. key_type, value_type: theirs. position: tokens read, at least
  // next_seal().
  void seal(ThreadPool& pool, const Kernels& kernels, std::span<LayerRows> layers, DType key_type,
            DType value_type, Pos position, const Repetition* repetition = nullptr);
  // Makes the memory what it is with the block that was sealed: thins, consolidates, sheds and moves. When
  // memory ends on the way (std::bad_alloc) the next call goes on from there; until then nobody may read it.
  // `tokens`: all that were read; without them the oldest text is thinned first.
  void settle(ThreadPool& pool, const Kernels& kernels, std::span<const TokenId> tokens);
  bool is_settled() const { return due_ == Due::nothing; }

  // What queries see of the past of one head, oldest first; readers from `reader` on that see `newest`
  // positions only.
  void append_spans(int layer, int head, std::optional<std::int64_t> newest, Pos reader,
                    std::vector<Span>& spans) const;
  // The turn that brings the sinks near enough to be seen; nullptr: they are seen where they are.
  const float* sink_rotation(int layer) const;
  std::int64_t rotation_pairs(int layer) const {
    return static_cast<std::int64_t>(spec_.frequencies[static_cast<std::size_t>(layer)].size());
  }

  std::int64_t held_bytes() const;
  ProceduralCounts counts() const;
  // The steps of the newest seal; bytes and exact rows are the state's business.
  const std::vector<ProceduralEvent>& newest_seal() const { return newest_seal_; }
  // Throws Error(numeric) that names the head whose rows and losses do not add up to what was sealed. Builds
  // with assertions do it after every seal.
  void audit() const;
  // The blocks that were sealed, as heads see them in a layer.
  struct SealedBlock {
    Pos first = 0, last = 0;
    std::vector<float> rotation = {}, full_rotation = {};  // [2][pairs]; empty: seen where they are
    float mass = 0.0f;                                     // nats, as plain heads see it
  };
  std::vector<SealedBlock> sealed_blocks(int layer) const;
  // The position of the row of a head whose key lies there.
  Pos position_of(int layer, int h, const std::byte* key) const;
  void clear();

  // Throws Error(unsupported) for one with a spill file, which no other memory can read.
  ProceduralImage image() const;
  // Becomes the memory of `image` after `position` tokens, its bytes still to be filled in; throws
  // Error(invalid_argument) and changes nothing when the image contradicts the spec.
  void restore(const ProceduralImage& image, Pos position);
  // The bytes of procedural_tensors(spec, image), in their order.
  std::vector<std::span<std::byte>> payload();
  std::vector<std::span<const std::byte>> payload() const;
  // Throws Error(invalid_argument) when a number in them cannot be.
  void check_payload() const;

 private:
  struct Block {
    Pos first = 0, last = 0;
    int level = 1;
    Pos shift = 0;
    std::int64_t tick = 0;  // consolidations so far when the scores of its rows were written
    // The newest part of the text that became this block is seen from its own distance; older parts have keys
    // that were moved up to it, and begin `reach` positions farther away.
    Pos reach = 0;
    float mass = 0.0f;  // nats, added to its rows' log mass: far.h
  };
  struct Head {  // of one layer
    std::shared_ptr<HeadRows> rows;
    std::vector<std::int64_t> block_rows;  // per block of its list, behind those in the spill file
    std::shared_ptr<SpilledRows> spilled;  // the oldest blocks of a whole head; nullptr: none
    double lost = 0.0;                     // tokens that no row stands for any more
    float strain = 0.0f;                   // what rows are shared out by: of the newest block
    // Of the first block, transformed as the keys are: it is taken off keys in four bits, whose steps are as wide as
    // the largest number of a key asks for. Empty: other types, and memories of older snapshots.
    std::vector<float> mean_key;
  };
  struct FullBlock {
    Pos first = 0;
    Pos shift = 0;
  };

  Head& head(int layer, int h) {
    return heads_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(h)];
  }
  const Head& head(int layer, int h) const {
    return heads_[static_cast<std::size_t>(layer)][static_cast<std::size_t>(h)];
  }
  const HeadPlan& plan(int layer, int h) const {
    return spec_.plans[static_cast<std::size_t>(layer)][static_cast<std::size_t>(h)];
  }
  HeadRows& writable(Head& head);
  bool plain(std::size_t layer, std::size_t h) const { return !spec_.plans[layer][h].full; }
  // Layers and heads for which `wanted(plan)`, in order.
  template <class Wanted>
  std::vector<std::pair<int, int>> heads_where(const Wanted& wanted) const {
    std::vector<std::pair<int, int>> found;
    for (std::size_t layer = 0; layer < heads_.size(); ++layer)
      for (std::size_t h = 0; h < heads_[layer].size(); ++h)
        if (wanted(spec_.plans[layer][h])) found.emplace_back(static_cast<int>(layer), static_cast<int>(h));
    return found;
  }
  void consolidate(ThreadPool& pool, const Kernels& kernels, Pos position);
  void refresh_scores(Head& target, std::size_t begin) noexcept;
  std::size_t fading_pair(Pos position) const;
  // Of plain heads and a pair of blocks that becomes one, its first block `begin`: the rows that stay, and the
  // block that it becomes, whose older part moves `nearer` positions up.
  std::vector<MergedHead> rows_of_merge(ThreadPool& pool, const Kernels& kernels,
                                        const std::vector<std::pair<int, int>>& heads, std::size_t begin,
                                        Pos position) const;
  // Returns how many tokens fewer the head's rows stand for, as drop_rows() does. Different heads from different threads.
  static double stand_for(Head& head, const MergedHead& merged) noexcept;
  Block merge_of(std::size_t begin, Pos nearer) const;
  std::vector<std::int64_t> rows_by_strain() const;
  void shed();
  void shed_soft(Head& head);
  void shed_hard(std::size_t layer);
  double score(const Head& head, std::int64_t row, const Block& block) const;
  // Rows that go, in two steps: what needs memory, and the rest.
  struct Dropping {
    Head* head;
    std::vector<bool> gone;
    std::vector<std::int64_t> kept;
  };
  Dropping prepare_drop(Head& head, std::vector<bool> gone);
  static double drop_rows(const Dropping& dropping) noexcept;
  void expect_event();  // the next note_event then needs no memory
  void note_event(ProceduralEvent::Kind kind, const Block& block, Pos position, double seconds) noexcept;
  bool has_mean_keys() const;
  void count(ProceduralCounts& counts) const noexcept;
  void count_head(const Head& head, const HeadPlan& plan, ProceduralCounts& counts) const noexcept;
  void make_room_in_memory();
  void thin_full_heads(std::span<const TokenId> tokens);
  std::vector<bool> rows_to_thin(const std::vector<std::pair<int, int>>& heads,
                                 std::span<const TokenId> tokens) const;
  Pos shift_of(Pos first, Pos position, Pos most, Pos reach = 0) const;
  void move_full_blocks(std::vector<FullBlock>& blocks, Pos position);
  float mass_of(Pos first, Pos last, Pos position) const;
  Pos newest_part(const Block& block) const { return first_sealed_before(spec_, block.last); }
  void move_blocks(Pos position);
  const float* rotation(int layer, Pos shift) const;

  ProceduralSpec spec_;
  std::vector<LayerShape> layers_;
  bool has_full_heads_ = false, has_whole_heads_ = false;  // that thin out; that never do
  Pos sealed_ = 0;                                         // positions below, sinks apart, are in blocks
  std::vector<Block> blocks_;                              // of plain heads, oldest first
  std::vector<FullBlock> full_;                            // of full heads, oldest first
  std::vector<FullBlock> whole_;                           // of heads that never thin out, likewise
  Pos sink_shift_ = 0;
  std::vector<std::vector<Head>> heads_;  // [layer][kv_head]
  std::shared_ptr<References> references_;
  std::shared_ptr<SpillFile> spill_;  // nullptr: none
  // Turns in use, ascending by shift: per layer [shift][2][pairs].
  std::vector<Pos> turns_;
  std::vector<std::vector<float>> angles_;
  std::vector<std::size_t> turns_like_;  // per layer: whose angles it uses
  ProceduralCounts counts_;
  double mass_error_sum_ = 0.0;
  std::int64_t mass_errors_ = 0;
  std::vector<ProceduralEvent> newest_seal_;
  ProceduralEvent next_event_;  // with room for what it counts
  enum class Due { nothing, thinning, consolidating };
  Due due_ = Due::nothing;     // of the newest seal
  double seal_seconds_ = 0.0;  // so far
};

}  // namespace kvtide
