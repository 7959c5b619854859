#include "state/procedural/choice.h"

#include <string>

#include "base/text.h"
#include "kvtide/error.h"
#include "state/procedural/budget.h"
#include "state/procedural/far.h"
#include "state/procedural/stages.h"

namespace kvtide {
namespace {

int head_dim_of(const KvSpec& shape) {
  if (shape.layers.empty())
    throw Error(ErrorCode::invalid_argument,
                "procedural memory: no layer of the model keeps rows, so there is nothing to compress");
  return whole_layer(shape.layers).head_dim;
}

void check_pins(const std::vector<PosRange>& pins) {
  Pos end = 0;
  for (const PosRange& pin : pins) {
    if (pin.first < end || pin.first >= pin.last)
      throw Error(ErrorCode::invalid_argument,
                  cat("procedural memory: positions ", pin.first, " to ", pin.last,
                      " cannot be pinned: ranges must ascend, lie apart and hold something"));
    end = pin.last;
  }
}

DType dtype_of(RowType wanted, DType automatic) {
  switch (wanted) {
    case RowType::automatic:
      return automatic;
    case RowType::f16:
      return DType::f16;
    case RowType::q8_0:
      return DType::q8_0;
    case RowType::q4_0:
      return DType::q4_0;
  }
  return automatic;
}

}  // namespace

// Beyond the trained length more rows of blocks bring nothing, and take time.
RowType row_type_for(const KvSpec& shape, const AttentionShape& attention, const ProceduralOptions& o) {
  if (o.row_type != RowType::automatic) return o.row_type;
  if (head_dim_of(shape) % 32 != 0) return RowType::f16;
  const bool beyond = attention.trained > 0 && o.budget_for > attention.trained;
  return o.budget > 0 && !beyond ? RowType::q4_0 : RowType::q8_0;
}

ProceduralSpec procedural_spec(const KvSpec& shape, const AttentionShape& attention,
                               const ProceduralOptions& o) {
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, "procedural memory: " + why);
  };
  head_dim_of(shape);  // there are layers
  const int kv_heads = whole_layer(shape.layers).kv_heads, layers = static_cast<int>(shape.layers.size());
  const std::size_t heads = shape.layers.size() * static_cast<std::size_t>(kv_heads);
  if (!o.heads.needs.empty() && (o.heads.kv_heads != kv_heads || o.heads.needs.size() != heads))
    refuse(cat("the head table has ", o.heads.needs.size(), " heads, the model ", heads));
  if (o.rows < 1 || o.rows > o.block)
    refuse(cat("a block of ", o.block, " keeps 1 to ", o.block, " rows, not ", o.rows));
  if (o.summaries < 0 || o.summaries >= o.rows)
    refuse(cat("of ", o.rows, " rows 0 to ", o.rows - 1, " can be summaries, not ", o.summaries));
  if (o.levels < 0 || o.levels > kMostLevels)
    refuse(cat("consolidation has 0 to ", kMostLevels, " levels, not ", o.levels));
  const int last_layer = o.last_layer < 0 ? layers - 1 : o.last_layer;
  if (o.first_layer < 0 || o.first_layer > last_layer || last_layer >= layers)
    refuse(cat("layers ", o.first_layer, "-", last_layer, " cannot be compressed: there are 0-", layers - 1));
  check_pins(o.pins);

  ProceduralSpec spec;
  static_cast<ProceduralOptions&>(spec) = o;
  spec.plain_type = dtype_of(row_type_for(shape, attention, o), DType::f16);
  spec.reference_type = spec.plain_type;
  spec.keeps_scores = sheds(o);
  spec.copy_type = dtype_of(o.full_type, spec.plain_type);
  for (const DType type : {spec.copy_type, spec.plain_type})
    if (head_dim_of(shape) % dtype_info(type).block_elements != 0)
      refuse(cat(type == spec.copy_type ? "rows of full heads in " : "old rows in ", dtype_info(type).name,
                 " need heads of a multiple of 32 elements, not ", head_dim_of(shape), "; use f16"));
  spec.far_from = far_from_of(attention.trained);
  spec.query_heads = attention.query_heads;
  spec.scale = attention.scale;
  std::vector<bool> compressed;
  for (const LayerSpec& layer : shape.layers) {
    compressed.push_back(!layer.window);
    spec.frequencies.push_back(layer.frequencies);
  }
  spec.plans = plan_heads(o, compressed, kv_heads);
  place_references(spec);
  if (o.exact_first) {  // not while a budget is filled, which asks for many specs
    KvSpec whole = shape;
    whole.rolling.reset();
    whole.procedural = spec;
    spec.stages = row_stages(whole);
    place_references(spec);
  }
  return spec;
}

}  // namespace kvtide
