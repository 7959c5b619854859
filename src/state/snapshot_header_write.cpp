// snapshot_header_write.cpp: the header of a snapshot as JSON on one line, members in a fixed order.
#include <algorithm>
#include <type_traits>

#include "base/json/json.h"
#include "state/snapshot_header.h"

namespace kvtide {
namespace {

std::string_view name_of_type(DType type) { return dtype_info(type).name; }

// The fields of a procedural memory's options, by their types.
Json field_json(std::int64_t value) { return value; }
Json field_json(int value) { return value; }
Json field_json(float value) { return value; }
Json field_json(const std::vector<PosRange>& ranges) {
  Json list = Json::array();
  for (const PosRange& range : ranges) list.push(std::vector{range.first, range.last});
  return list;
}
template <class Choice>
requires std::is_enum_v<Choice> Json field_json(Choice choice) { return name_of(choice); }

Json plan_json(const HeadPlan& plan) {
  Json json = Json::object();
  json.set("full", plan.full).set("whole", plan.whole).set("rows", plan.rows).set("weight", plan.weight);
  return json;
}

// The frequencies are those of the layers.
Json procedural_json(const ProceduralSpec& spec) {
  Json json = Json::object(), heads = Json::array();
  visit(spec, [&](const ProceduralField& field, const auto& value) {
    if constexpr (requires { field_json(value); })
      if (field.since >= 0) json.set(field.name, field_json(value));
  });
  for (const auto& layer : spec.plans) {
    Json plans = Json::array();
    for (const HeadPlan& plan : layer) plans.push(plan_json(plan));
    heads.push(std::move(plans));
  }
  Json stages = Json::array();
  for (const RowStage& stage : spec.stages) {
    Json one = Json::object();
    one.set("key_type", name_of_type(stage.key_type))
        .set("value_type", name_of_type(stage.value_type))
        .set("until", stage.until);
    stages.push(std::move(one));
  }
  json.set("stages", std::move(stages));
  json.set("row_type", name_of_type(spec.plain_type))
      .set("full_type", name_of_type(spec.copy_type))
      .set("far_from", spec.far_from)
      .set("query_heads", spec.query_heads)
      .set("reference_stride", spec.reference_stride)
      .set("reference_span", spec.reference_span)
      .set("reference_from", spec.reference_from)
      .set("reference_type", name_of_type(spec.reference_type))
      .set("keeps_scores", spec.keeps_scores)
      .set("scale", spec.scale)
      .set("heads", std::move(heads));
  return json;
}

Json past_json(const ProceduralImage& image) {
  Json json = Json::object(), blocks = Json::array();
  for (const auto& block : image.blocks)
    blocks.push(std::vector<std::int64_t>{block.first, block.last, block.level, block.tick, block.reach});
  json.set("sealed", image.sealed)
      .set("blocks", std::move(blocks))
      .set("full", image.full)
      .set("whole", image.whole)
      .set("lost", image.lost)
      .set("strain", image.strain)
      .set("rows", image.rows)
      .set("observed", image.observed)
      .set("mean_keys", image.mean_keys)
      .set("retained", image.retained)
      .set("retain_stride", image.retain_stride)
      .set("blocks_seen", image.blocks_seen)
      .set("blocks_sealed", image.counts.blocks_sealed)
      .set("consolidations", image.counts.consolidations)
      .set("thinned", image.counts.thinned)
      .set("shed_soft", image.counts.shed_soft)
      .set("shed_hard", image.counts.shed_hard)
      .set("level_hits", image.counts.level_hits)
      .set("fits_rejected", image.counts.fits_rejected)
      .set("shed_mass", image.counts.shed_mass)
      .set("mass_error_sum", image.counts.log_mass_error)
      .set("mass_errors", image.mass_errors);
  return json;
}

// The step is told by the name that files of format 1.0 gave it.
Json spec_json(const KvSpec& spec) {
  // Layers share a few rotations, which stand once.
  std::vector<std::vector<double>> ropes;
  Json json = Json::object(), layers = Json::array(), recurrent = Json::array(), rolling;
  for (const LayerSpec& layer : spec.layers) {
    Json item = Json::object();
    item.set("kv_heads", layer.kv_heads).set("head_dim", layer.head_dim).set("window", layer.window);
    if (layer.values_in_keys) item.set("values_in_keys", true);
    if (!layer.frequencies.empty()) {
      const auto found = std::find(ropes.begin(), ropes.end(), layer.frequencies);
      item.set("rope", found - ropes.begin());
      if (found == ropes.end()) ropes.push_back(layer.frequencies);
    }
    layers.push(std::move(item));
  }
  if (spec.rolling) {
    rolling = Json::object();
    rolling.set("sinks", spec.rolling->sinks).set("window", spec.rolling->window);
  }
  for (const RecurrentSpec& tensor : spec.recurrent) {
    Json item = Json::object();
    item.set("name", tensor.name).set("dtype", name_of_type(tensor.dtype)).set("shape", tensor.shape);
    recurrent.push(std::move(item));
  }
  Json checkpoints = Json::object();
  checkpoints.set("every", spec.checkpoints.every).set("budget", spec.checkpoints.budget);
  json.set("layers", std::move(layers))
      .set("checkpoints", std::move(checkpoints))
      .set("key_type", name_of_type(spec.key_type))
      .set("value_type", name_of_type(spec.value_type))
      .set("capacity", spec.capacity)
      .set("max_append", spec.max_step)
      .set("slack", spec.slack)
      .set("rotary", spec.rotary)
      .set("rolling", std::move(rolling))
      .set("procedural", spec.procedural ? procedural_json(*spec.procedural) : Json())
      .set("ropes", ropes)
      .set("recurrent", std::move(recurrent));
  return json;
}

Json adapting_json(const AutoAttentionLog& log) {
  Json json = Json::object();
  json.set("smallest", log.range.smallest)
      .set("largest", log.range.largest)
      .set("first", log.first)
      .set("samples", log.samples);
  return json;
}

Json tensors_json(const std::vector<SnapshotTensor>& tensors) {
  Json list = Json::array();
  for (const SnapshotTensor& t : tensors) {
    Json item = Json::object();
    item.set("name", t.name)
        .set("dtype", t.dtype ? name_of_type(*t.dtype) : "i32")
        .set("shape", t.shape)
        .set("first", t.first)
        .set("offset", t.offset)
        .set("bytes", t.bytes);
    list.push(std::move(item));
  }
  return list;
}

}  // namespace

std::string write_header(const SnapshotHeader& header) {
  const StateImage& image = header.image;
  Json json = Json::object(), identity = Json::object(), segments = Json::array();
  for (const auto& [key, value] : header.extras.identity) identity.set(key, value);
  for (const Segment& s : image.segments) segments.push(std::vector{s.first, s.last, s.shift});
  json.set("format", "kvtide-state")
      .set("minor", header.minor)
      .set("identity", std::move(identity))
      .set("exact", header.extras.exact)
      .set("spec", spec_json(image.spec))
      .set("position", image.position)
      .set("attention_size", image.attention_size)
      .set("auto_attention", image.adapting ? adapting_json(*image.adapting) : Json())
      .set("segments", std::move(segments))
      .set("released", image.released)
      .set("forgotten", image.forgotten)
      .set("edited", image.edited)
      .set("checkpoints", image.checkpoints)
      .set("past", image.past ? past_json(*image.past) : Json())
      .set("tokens", header.extras.tokens)
      .set("payload_bytes", header.payload_bytes)
      .set("tensors", tensors_json(header.tensors));
  return json.text(JsonForm::line);
}

}  // namespace kvtide
