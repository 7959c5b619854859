#include "model/procedural.h"

#include "base/text.h"
#include "kvtide/error.h"
#include "model/rope_table.h"

namespace kvtide {

ProceduralSpec procedural_spec(const ModelConfig& config, const ProceduralOptions& o) {
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, "procedural memory: " + why);
  };
  const std::size_t heads = config.layers.size() * static_cast<std::size_t>(config.kv_heads);
  if (!o.heads.needs.empty() && (o.heads.kv_heads != config.kv_heads || o.heads.needs.size() != heads))
    refuse(cat("the head table has ", o.heads.needs.size(), " heads, the model ", heads));
  if (o.rows < 1 || o.rows > o.block)
    refuse(cat("a block of ", o.block, " keeps 1 to ", o.block, " rows, not ", o.rows));
  if (o.summaries < 0 || o.summaries >= o.rows)
    refuse(cat("of ", o.rows, " rows 0 to ", o.rows - 1, " can be summaries, not ", o.summaries));
  if (o.levels < 0 || o.levels > 8) refuse(cat("consolidation has 0 to 8 levels, not ", o.levels));
  if (!o.half_precision && config.head_dim % 32 != 0)
    refuse(cat("q8_0 rows need heads of a multiple of 32 elements, not ", config.head_dim));

  ProceduralSpec spec;
  spec.sinks = o.sinks;
  spec.window = o.window;
  spec.block = o.block;
  spec.summaries = o.summaries;
  spec.summary = o.summary;
  spec.score = o.score;
  spec.row_type = o.half_precision ? DType::f16 : DType::q8_0;
  spec.full_rows = o.full_rows;
  spec.far = o.far;
  spec.far_from = config.context_length / 8 * 7;
  spec.levels = o.levels;
  spec.query_heads = config.heads;
  spec.scale = config.attention_scale;
  std::vector<bool> compressed;
  for (const LayerConfig& layer : config.layers) {
    compressed.push_back(!layer.window);
    spec.frequencies.push_back(
        RopeTable(config.ropes[static_cast<std::size_t>(layer.rope)], config.rope_dims).frequencies());
  }
  spec.heads = plan_heads(o, compressed, config.kv_heads);
  return spec;
}

}  // namespace kvtide
