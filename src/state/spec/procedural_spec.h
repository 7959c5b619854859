// procedural_spec.h: what a procedural memory is made from, as plain data: what was chosen, a budget included,
// and what was derived from it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kvtide/procedural.h"
#include "tensor/dtype.h"

namespace kvtide {

// How one (layer, KV head) keeps its past.
struct HeadPlan {
  bool full = false;      // keeps every row
  bool whole = false;     // and never thins out, whatever full_rows says
  std::int64_t rows = 0;  // of a block, summaries included; at most the block
  float weight = 1.0f;    // makes the scores of rows comparable between heads
  friend bool operator==(const HeadPlan&, const HeadPlan&) = default;
};

// Until `until` tokens were read every row is kept, in these types.
struct RowStage {
  DType key_type = DType::f16, value_type = DType::f16;
  Pos until = 0;
  friend bool operator==(const RowStage&, const RowStage&) = default;
};

// What was chosen, nothing left open, and what follows from it for the layers that it is for.
struct ProceduralSpec : ProceduralOptions {
  // Of rows outside the window, of plain heads and of full ones; q4_0: as Hadamard transforms.
  DType plain_type = DType::q8_0, copy_type = DType::q8_0;
  Pos far_from = 0;  // no row is seen from further away; 0: true distances
  int query_heads = 0;
  std::int64_t reference_stride =
      0;                            // positions from one reference to the next; 0 (old files): a block has 32
  std::int64_t reference_span = 0;  // newest positions that have references; 0: window and block
  Pos reference_from = 0;           // positions below have none
  DType reference_type = DType::f16;  // of references' queries
  bool keeps_scores = true;           // do rows have them: in old files, and where they are shed
  float scale = 0.0f;                 // of q.k
  // Before blocks are sealed, ascending; empty: they are from the start. What comes then: window_types in
  // procedural/stages.h.
  std::vector<RowStage> stages;
  std::vector<std::vector<HeadPlan>> plans;  // [layer][kv_head]; empty for layers with a window of their own
  std::vector<std::vector<double>> frequencies;  // [layer][pairs], radians per position
  friend bool operator==(const ProceduralSpec&, const ProceduralSpec&) = default;
};

// Does it ask rows for their scores?
inline bool sheds(const ProceduralOptions& o) { return o.shed_below > 0.0f || o.level_rows > 0; }

// Most tokens of a block and of the window that judge a block.
inline constexpr std::int64_t kBlockReferences = 32, kWindowReferences = 64;
inline std::int64_t reference_stride(const ProceduralSpec& spec) {
  if (spec.reference_stride > 0) return spec.reference_stride;
  return spec.block < kBlockReferences ? 1 : spec.block / kBlockReferences;
}

// What follows for options that are filled in. A token gives a reference per query head that shares the KV head: where these
// are three and more, half as many tokens judge as well. References of a wide window lie no closer together than those of a
// narrow one, so that they do not grow with it. Rows that are kept for a while need none until they are sealed.
void place_references(ProceduralSpec& spec);

// The stage of a text of so many tokens; nullptr: blocks are sealed.
inline const RowStage* stage_at(const ProceduralSpec& spec, Pos position) {
  for (const RowStage& stage : spec.stages)
    if (position < stage.until) return &stage;
  return nullptr;
}

// Where the block that was sealed up to `last` began.
inline Pos first_sealed_before(const ProceduralSpec& spec, Pos last) {
  return std::max<Pos>(last - spec.block, spec.sinks);
}

// The type of the rows of a head, and whether they are stored as Hadamard transforms.
inline DType type_of_rows(const ProceduralSpec& spec, const HeadPlan& plan) {
  return plan.full ? spec.copy_type : spec.plain_type;
}
inline bool is_spread(const ProceduralSpec& spec, const HeadPlan& plan) {
  return type_of_rows(spec, plan) == DType::q4_0;
}

// The first layer that turns rows as this one does: they share the numbers.
std::size_t turns_like(const ProceduralSpec& spec, std::size_t layer);

// Positions of [first, last) that are pinned.
std::int64_t pinned_within(const ProceduralSpec& spec, Pos first, Pos last);
// Ranges that ascend and lie apart.
std::vector<PosRange> with_pin(std::vector<PosRange> pins, const PosRange& range);
inline bool is_pinned(const ProceduralSpec& spec, Pos position) {
  return pinned_within(spec, position, position + 1) > 0;
}

// The plan of every head: full from `full_from` on, the rest of `rows` x heads shared out by need, each head
// between 0.2 and 3 times the mean; where most heads are full, the others keep `rows` each.
std::vector<std::vector<HeadPlan>> plan_heads(const ProceduralOptions& options,
                                              const std::vector<bool>& compressed_layers, int kv_heads);
// The other way round, for files that do not tell: `rows` of which such plans came.
std::int64_t rows_of_plans(const ProceduralSpec& spec);

// Do both keep the same rows of every text, whatever their budgets and the head tables that led to them?
bool keeps_the_same(const ProceduralSpec& a, const ProceduralSpec& b);

}  // namespace kvtide
