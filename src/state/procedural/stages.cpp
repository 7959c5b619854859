#include "state/procedural/stages.h"

#include <algorithm>

#include "base/pages.h"
#include "kernels/attend_kernel.h"
#include "state/procedural/budget.h"
#include "state/procedural/far.h"
#include "state/rows/row_format.h"

namespace kvtide {
namespace {

constexpr Pos kLongestStage = Pos{1} << 31;

// Pages of the first `tokens` tokens: of those that are still held, in layers with a window of their own.
std::int64_t bytes_of_rows(const KvSpec& spec, const RowStage& types, Pos tokens) {
  const Pos beside = spec.slack + longest_step_beside_windows(spec) + kTileRows;
  std::int64_t bytes = 0;
  for (const LayerSpec& layer : spec.layers) {
    const Pos held = layer.window ? std::min<Pos>(tokens, *layer.window + beside) : tokens;
    bytes += most_page_bytes_from_start(row_format(spec, layer, types), held);
  }
  return bytes;
}

// Layers are rewritten one by one, in place: the newest rows are there twice, and pages that are begun.
std::int64_t bytes_of_rewriting(const KvSpec& spec, const RowStage& types, Pos tokens) {
  return bytes_of_largest_layer(spec, types, std::min(tokens, kRewrittenAtOnce));
}

// The most that a stage holds, its end included; next: nullptr when blocks are sealed there. observed: are there
// references by then?
std::int64_t bytes_of_stage(const KvSpec& spec, const RowStage& stage, const RowStage* next, bool observed) {
  const ProceduralSpec& p = *spec.procedural;
  const Pos kept = p.window + spec.slack + p.block;
  const ProceduralBytes one_block = most_bytes(spec, kept);
  const std::int64_t rows =
      bytes_of_rows(spec, stage, stage.until) + one_block.carried + (observed ? one_block.references : 0);
  if (next != nullptr) return rows + bytes_of_rewriting(spec, *next, stage.until);
  // Sealing gives back a block's rows before it goes on to the next, but for pages that are begun; then the window is
  // rewritten.
  const std::int64_t begun = bytes_of_rewriting(spec, stage, kept);
  const std::int64_t sealing = rows + begun + one_block.compact + one_block.full +
                               bytes_of_largest_layer(spec, stage, repeated_tokens(spec));
  return std::max(sealing, most_bytes(spec, stage.until).total() + begun);
}

// Element types to go through: as written, then eight bits where these save something.
std::vector<RowStage> types_of_stages(const KvSpec& spec) {
  std::vector<RowStage> stages{{spec.key_type, spec.value_type, 0}};
  const ProceduralSpec& p = *spec.procedural;
  bool summarises = false;  // else sealing is nothing but such a rewriting
  for (const auto& layer : p.plans)
    for (const HeadPlan& plan : layer) summarises = summarises || !plan.full;
  if (summarises && p.plain_type != DType::f16 && may_narrow(spec))
    stages.push_back({DType::q8_0, DType::q8_0, 0});
  return stages;
}

// The positions that stages may reach. Exact rows are seen where they are: no further than the model was trained for.
Pos longest_stage(const ProceduralSpec& p) {
  if (p.far_from == 0) return kLongestStage;
  return p.budget_for <= trained_length(p.far_from) ? std::max(p.far_from, p.budget_for + kTileRows)
                                                    : p.far_from;
}

// Fills in where the stages end; false: one of them would not be worth it. observed: are there references from the
// first stage on?
bool end_stages(const KvSpec& spec, std::vector<RowStage>& stages, bool observed) {
  const ProceduralSpec& p = *spec.procedural;
  Pos from = p.window + spec.slack + p.block;  // at which a block would be sealed anyway
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const RowStage* next = i + 1 < stages.size() ? &stages[i + 1] : nullptr;
    const auto fits = [&](Pos until) {
      stages[i].until = until;
      return bytes_of_stage(spec, stages[i], next, observed || next == nullptr) <= p.budget;
    };
    Pos low = 0, high = longest_stage(p) / kTileRows;
    while (low < high) {
      const Pos middle = (low + high + 1) / 2;
      if (fits(middle * kTileRows))
        low = middle;
      else
        high = middle - 1;
    }
    // Not a token more than is expected must fit.
    if (low * kTileRows > p.budget_for || p.budget_for >= longest_stage(p) || !fits(p.budget_for + 1))
      stages[i].until = low * kTileRows;
    // Behind the expected text a stage only keeps references and blocks away from exact rows.
    const bool behind = i > 0 && p.budget_for > 0 && from > p.budget_for;
    if (stages[i].until < from + (behind ? 1 : p.block)) return false;
    from = stages[i].until;
  }
  return true;
}

}  // namespace

bool may_narrow(const KvSpec& spec) {
  const auto is_wide = [](DType type) { return type == DType::f16 || type == DType::f32; };
  return is_wide(spec.key_type) && is_wide(spec.value_type) &&
         std::all_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
           return layer.head_dim % dtype_info(DType::q8_0).block_elements == 0;
         });
}

std::vector<RowStage> row_stages(const KvSpec& spec) {
  const ProceduralSpec& p = *spec.procedural;
  if (!p.exact_first || p.budget == 0 || grows(p)) return {};
  std::vector<RowStage> stages = types_of_stages(spec);
  while (!stages.empty()) {
    if (end_stages(spec, stages, false)) {
      KvSpec with = spec;
      with.procedural->stages = stages;
      place_references(*with.procedural);
      if (stages.size() == 1 || with.procedural->reference_from >= stages.front().until) return stages;
      if (end_stages(spec, stages, true)) return stages;
    }
    stages.pop_back();
  }
  return stages;
}

std::int64_t bytes_of_stages(const KvSpec& spec) {
  std::int64_t most = 0;
  if (!spec.procedural) return most;
  const std::vector<RowStage>& stages = spec.procedural->stages;
  for (std::size_t i = 0; i < stages.size(); ++i)
    most = std::max(most, bytes_of_stage(spec, stages[i], i + 1 < stages.size() ? &stages[i + 1] : nullptr,
                                         stages[i].until > spec.procedural->reference_from));
  return most;
}

}  // namespace kvtide
