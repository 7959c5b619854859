#include "state/procedural/stages.h"

#include <algorithm>

#include "kernels/attend_kernel.h"
#include "state/procedural/budget.h"

namespace kvtide {
namespace {

constexpr Pos kLongestStage = Pos{1} << 31;

// Pages of a layer's first `tokens` tokens: of those that it still holds, where it has a window of its own.
std::int64_t bytes_of_layer(const KvSpec& spec, const LayerSpec& layer, const RowStage& types, Pos tokens) {
  if (layer.window) tokens = std::min<Pos>(tokens, *layer.window + spec.slack + spec.max_step + kTileRows);
  return layer.kv_heads * (region_bytes(tokens, dtype_bytes(types.key_type, layer.head_dim)) +
                           region_bytes(tokens, dtype_bytes(types.value_type, layer.head_dim)));
}

std::int64_t bytes_of_rows(const KvSpec& spec, const RowStage& types, Pos tokens) {
  std::int64_t bytes = 0;
  for (const LayerSpec& layer : spec.layers) bytes += bytes_of_layer(spec, layer, types, tokens);
  return bytes;
}

// Layers are rewritten one by one: the largest is there twice.
std::int64_t largest_layer(const KvSpec& spec, const RowStage& types, Pos tokens) {
  std::int64_t bytes = 0;
  for (const LayerSpec& layer : spec.layers)
    bytes = std::max(bytes, bytes_of_layer(spec, layer, types, tokens));
  return bytes;
}

// The most that a stage holds, its end included; next: nullptr when blocks are sealed there.
std::int64_t bytes_of_stage(const KvSpec& spec, const RowStage& stage, const RowStage* next) {
  const ProceduralSpec& p = *spec.procedural;
  const Pos kept = p.window + spec.slack + p.block;
  const ProceduralBytes one_block = most_bytes(spec, kept);
  const std::int64_t rows = bytes_of_rows(spec, stage, stage.until) + one_block.references;
  if (next != nullptr) return rows + largest_layer(spec, *next, stage.until);
  // Sealing gives back a block's rows before it goes on to the next; then the window is rewritten.
  const std::int64_t sealing = rows + one_block.compact + one_block.full;
  const std::int64_t sealed =
      most_bytes(spec, stage.until).total() + largest_layer(spec, stage, std::min(kept, stage.until));
  return std::max(sealing, sealed);
}

// Element types to go through: as written, then eight bits where these save something.
std::vector<RowStage> types_of_stages(const KvSpec& spec) {
  std::vector<RowStage> stages{{spec.key_type, spec.value_type, 0}};
  const ProceduralSpec& p = *spec.procedural;
  const bool whole_blocks = std::all_of(spec.layers.begin(), spec.layers.end(), [](const LayerSpec& layer) {
    return layer.head_dim % dtype_info(DType::q8_0).block_elements == 0;
  });
  bool summarises = false;  // else sealing is nothing but such a rewriting
  for (const auto& layer : p.plans)
    for (const HeadPlan& plan : layer) summarises = summarises || !plan.full;
  const auto is_wide = [](DType type) { return type == DType::f16 || type == DType::f32; };
  if (whole_blocks && summarises && p.row_type != DType::f16 && is_wide(spec.key_type) &&
      is_wide(spec.value_type))
    stages.push_back({DType::q8_0, DType::q8_0, 0});
  return stages;
}

// Fills in where the stages end; false: one of them would not be worth it.
bool end_stages(const KvSpec& spec, std::vector<RowStage>& stages) {
  const ProceduralSpec& p = *spec.procedural;
  Pos from = p.window + spec.slack + p.block;  // at which a block would be sealed anyway
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const RowStage* next = i + 1 < stages.size() ? &stages[i + 1] : nullptr;
    // Exact rows are seen where they are: no further than the model was trained for.
    Pos low = 0, high = (p.far_from > 0 ? p.far_from : kLongestStage) / kTileRows;
    while (low < high) {
      const Pos middle = (low + high + 1) / 2;
      stages[i].until = middle * kTileRows;
      if (bytes_of_stage(spec, stages[i], next) <= p.budget)
        low = middle;
      else
        high = middle - 1;
    }
    stages[i].until = low * kTileRows;
    if (stages[i].until < from + p.block) return false;
    from = stages[i].until;
  }
  return true;
}

}  // namespace

std::vector<RowStage> row_stages(const KvSpec& spec) {
  const ProceduralSpec& p = *spec.procedural;
  if (!p.exact_first || p.budget == 0 || p.budget_for > 0 || grows(p)) return {};
  std::vector<RowStage> stages = types_of_stages(spec);
  while (!stages.empty() && !end_stages(spec, stages)) stages.pop_back();
  return stages;
}

std::int64_t bytes_of_stages(const KvSpec& spec) {
  std::int64_t most = 0;
  if (!spec.procedural) return most;
  const std::vector<RowStage>& stages = spec.procedural->stages;
  for (std::size_t i = 0; i < stages.size(); ++i)
    most = std::max(most, bytes_of_stage(spec, stages[i], i + 1 < stages.size() ? &stages[i + 1] : nullptr));
  return most;
}

}  // namespace kvtide
