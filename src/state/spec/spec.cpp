#include "state/spec/spec.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/text.h"
#include "kernels/attend_kernel.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1}
                                     << 40;  // sums of a few token counts stay far from overflow

constexpr std::int64_t kMostRecurrent = std::int64_t{1} << 28;  // of a recurrent tensor

bool keeps_rows(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::q8_0; }
bool keeps_or_spreads(DType type) { return keeps_rows(type) || type == DType::q4_0; }

[[noreturn]] void refuse_spec(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "KV state: " + why);
}

void check_recurrent(const KvSpec& spec) {
  for (std::size_t i = 0; i < spec.recurrent.size(); ++i) {
    const RecurrentSpec& tensor = spec.recurrent[i];
    const auto wrong = [&](const std::string& why) { refuse_spec(cat("tensor ", quoted(tensor.name), why)); };
    if (tensor.name.empty()) wrong(" needs a name");
    for (std::size_t j = 0; j < i; ++j)
      if (spec.recurrent[j].name == tensor.name) wrong(" is there twice");
    if (tensor.dtype != DType::f32 && tensor.dtype != DType::f16) wrong(" must be f32 or f16");
    if (tensor.shape.empty()) wrong(" needs a shape");
    std::int64_t elements = 1;
    for (const std::int64_t extent : tensor.shape) {
      if (extent < 1 || extent > kMostRecurrent / elements)
        wrong(cat(" must have extents of at least 1 and at most ", kMostRecurrent, " elements"));
      elements *= extent;
    }
  }
}

// Of the rows of all layers.
void check_types(const KvSpec& spec, DType key_type, DType value_type) {
  for (const DType dtype : {key_type, value_type}) {
    const DTypeInfo& type = dtype_info(dtype);
    if (!keeps_or_spreads(dtype))
      refuse_spec(cat("keys and values are kept as f32, f16, q8_0 or q4_0, not ", type.name));
    for (const LayerSpec& layer : spec.layers)
      if (layer.head_dim % type.block_elements != 0)
        refuse_spec(
            cat(type.name, " needs heads of a multiple of 32 elements, not ", layer.head_dim, "; use f16"));
  }
}

void check_layer(const LayerSpec& layer) {
  if (layer.kv_heads < 1) refuse_spec("a layer needs at least one KV head");
  if (layer.head_dim < 1 || layer.head_dim > kMaxHeadDim)
    refuse_spec(cat("head_dim must be between 1 and ", kMaxHeadDim, ", not ", layer.head_dim));
  if (static_cast<std::int64_t>(layer.frequencies.size()) > layer.head_dim / 2)
    refuse_spec(cat(layer.frequencies.size(), " rotated pairs do not fit a head of ", layer.head_dim));
  for (const double frequency : layer.frequencies)
    if (!std::isfinite(frequency)) refuse_spec("a rotation frequency is not finite");
  if (layer.window && (*layer.window < 1 || *layer.window > kMostTokens))
    refuse_spec(
        cat("a window must be at least 1 and at most ", kMostTokens, " positions, not ", *layer.window));
}

void check_chosen(const ProceduralSpec& p) {
  if (!keeps_or_spreads(p.plain_type))
    refuse_spec(cat("old rows are kept as f32, f16, q8_0 or q4_0, not ", dtype_info(p.plain_type).name));
  if (p.reference_type != DType::f16 && p.reference_type != DType::q8_0 && p.reference_type != DType::q4_0)
    refuse_spec(cat("references are kept as f16, q8_0 or q4_0, not ", dtype_info(p.reference_type).name));
  if (!keeps_or_spreads(p.copy_type))
    refuse_spec(cat("rows of heads that keep every row are f32, f16, q8_0 or q4_0, not ",
                    dtype_info(p.copy_type).name));
  visit(p, [&](const ProceduralField& field, const auto& value) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>)
      if (const auto number = static_cast<double>(value);
          field.least < field.most && !(number >= field.least && number <= field.most))
        refuse_spec(cat("the ", quoted(field.name), " of a procedural memory must be from ", field.least,
                        " to ", field.most, ", not ", number));
  });
  if (p.sinks >= p.block) refuse_spec(cat("the ", p.sinks, " sinks must fit into one block of ", p.block));
  if (p.window < p.block)
    refuse_spec(cat("the window must hold at least one block of ", p.block, " positions, not ", p.window));
  if (p.far_from < 0 || p.far_from > kMostTokens || p.reference_stride < 0 || p.reference_stride > p.block)
    refuse_spec("a procedural memory's far distance or reference stride is out of range");
  if (p.reference_span < 0 || p.reference_span > p.window + p.block || p.reference_from < 0 ||
      p.reference_from > (p.stages.empty() ? 0 : p.stages.back().until))
    refuse_spec("a procedural memory's references begin too late or reach too far back");
  if (sheds(p) && !p.keeps_scores) refuse_spec("rows can only be shed by scores, which are not kept");
  if (!std::isfinite(p.scale)) refuse_spec("the attention scale is not finite");
  Pos pinned = 0;
  for (const PosRange& pin : p.pins) {
    if (pin.first < pinned || pin.first >= pin.last || pin.last > kMostTokens)
      refuse_spec(cat("the pinned positions ", pin.first, " to ", pin.last, " overlap or are out of order"));
    pinned = pin.last;
  }
}

// Of a layer that is compressed, or kept as it is when it has no plans.
void check_plans(const KvSpec& spec, std::size_t i) {
  const ProceduralSpec& p = *spec.procedural;
  if (p.plans[i].empty()) return;
  if (spec.layers[i].window)
    refuse_spec(cat("layer ", i, " keeps a window of its own and is not compressed"));
  if (static_cast<int>(p.plans[i].size()) != spec.layers[i].kv_heads)
    refuse_spec(cat("layer ", i, " needs one plan per KV head"));
  if (p.query_heads < 1 || p.query_heads % spec.layers[i].kv_heads != 0)
    refuse_spec(cat(p.query_heads, " query heads cannot share ", spec.layers[i].kv_heads, " KV heads"));
  if (static_cast<int>(p.frequencies[i].size()) * 2 > spec.layers[i].head_dim)
    refuse_spec(cat("layer ", i, " turns more dimensions than its heads have"));
  for (const HeadPlan& plan : p.plans[i])
    if (plan.rows < 0 || plan.rows > p.block || !std::isfinite(plan.weight))
      refuse_spec(cat("a head keeps 0 to ", p.block, " rows of a block, not ", plan.rows));
  for (const DType type : {p.plain_type, p.copy_type, p.reference_type})
    if (spec.layers[i].head_dim % dtype_info(type).block_elements != 0)
      refuse_spec(cat(dtype_info(type).name, " needs heads of a multiple of 32 elements, not ",
                      spec.layers[i].head_dim, "; use f16"));
}

void check_procedural(const KvSpec& spec) {
  const ProceduralSpec& p = *spec.procedural;
  if (spec.rolling) refuse_spec("is either rolling or procedural, not both");
  if (!spec.rotary)
    refuse_spec("a procedural memory moves positions, which a model with absolute positions cannot follow");
  if (spec.layers.empty()) refuse_spec("needs layers that keep rows for a procedural memory");
  check_chosen(p);
  for (const LayerSpec& layer : spec.layers)
    if (!layer.window && layer.head_dim != whole_layer(spec.layers).head_dim)
      refuse_spec("a procedural memory needs heads of one size in all layers without a window");
  if (p.plans.size() != spec.layers.size() || p.frequencies.size() != spec.layers.size())
    refuse_spec("a procedural memory needs the plans and the frequencies of every layer");
  for (std::size_t i = 0; i < p.plans.size(); ++i) check_plans(spec, i);
  Pos before = 0;
  for (const RowStage& stage : p.stages) {
    if (stage.until <= before || stage.until > kMostTokens)
      refuse_spec(cat("rows cannot be kept until position ", stage.until, ", after ", before));
    before = stage.until;
    check_types(spec, stage.key_type, stage.value_type);
  }
  if (p.window_type == WindowType::q8_0) check_types(spec, DType::q8_0, DType::q8_0);
}

void check_rolling(const KvSpec& spec) {
  if (!spec.rotary)
    refuse_spec("a rolling window moves positions, which a model with absolute positions cannot follow");
  if (spec.rolling->sinks < 0) refuse_spec(cat("the number of sinks cannot be ", spec.rolling->sinks));
  if (spec.rolling->window < 1)
    refuse_spec(cat("a rolling window must hold at least 1 position, not ", spec.rolling->window));
}

}  // namespace

void check(const KvSpec& spec) {
  if (spec.layers.empty() && spec.recurrent.empty()) refuse_spec("needs at least one layer");
  check_recurrent(spec);
  if (spec.capacity < 1) refuse_spec(cat("capacity must be at least 1 token, not ", spec.capacity));
  if (spec.max_step < 1) refuse_spec(cat("the largest step must be at least 1 token, not ", spec.max_step));
  if (spec.checkpoints.every < 0 || spec.checkpoints.every > kMostTokens)
    refuse_spec(cat("checkpoints every ", spec.checkpoints.every, " tokens make no sense; 0 makes none"));
  if (spec.checkpoints.budget < 0)
    refuse_spec(cat("checkpoints cannot take ", spec.checkpoints.budget, " bytes"));
  if (spec.slack < 0) refuse_spec(cat("the slack cannot be ", spec.slack, " tokens"));
  for (const std::int64_t tokens : {spec.capacity, spec.max_step, spec.slack})
    if (tokens > kMostTokens)
      refuse_spec(cat("capacity and step may be at most ", kMostTokens, " tokens, not ", tokens));
  check_types(spec, spec.key_type, spec.value_type);
  for (const LayerSpec& layer : spec.layers) check_layer(layer);
  if (spec.procedural) check_procedural(spec);
  if (spec.rolling) check_rolling(spec);
}

ProceduralSpec memory_spec(const KvSpec& spec) {
  ProceduralSpec memory = *spec.procedural;
  memory.window += spec.slack;
  return memory;
}

}  // namespace kvtide
