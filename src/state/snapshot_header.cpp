#include "state/snapshot_header.h"

#include <nlohmann/json.hpp>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

using Json = nlohmann::ordered_json;

Json optional_number(const std::optional<std::int64_t>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// Names of choices, in the order of their enumerations.
constexpr const char* kSummaries[] = {"fit", "cluster", "positional"};
constexpr const char* kScores[] = {"mixed", "novelty", "vnorm", "attention"};
constexpr const char* kFarRules[] = {"log", "clamp"};
constexpr const char* kAdapts[] = {"off", "drift", "entropy"};

// The frequencies are those of the layers.
Json procedural_json(const ProceduralSpec& spec) {
  Json pins = Json::array();
  for (const PosRange& pin : spec.pins) pins.push_back({pin.first, pin.last});
  Json heads = Json::array();
  for (const auto& layer : spec.heads) {
    heads.push_back(Json::array());
    for (const HeadPlan& plan : layer)
      heads.back().push_back(
          {{"full", plan.full}, {"whole", plan.whole}, {"rows", plan.rows}, {"weight", plan.weight}});
  }
  return {{"sinks", spec.sinks},
          {"window", spec.window},
          {"block", spec.block},
          {"summaries", spec.summaries},
          {"summary", kSummaries[static_cast<int>(spec.summary)]},
          {"score", kScores[static_cast<int>(spec.score)]},
          {"row_type", dtype_info(spec.row_type).name},
          {"full_type", dtype_info(spec.full_type).name},
          {"full_rows", spec.full_rows},
          {"far", kFarRules[static_cast<int>(spec.far)]},
          {"far_from", spec.far_from},
          {"levels", spec.levels},
          {"pins", pins},
          {"level_rows", spec.level_rows},
          {"shed_below", spec.shed_below},
          {"decay", spec.decay},
          {"retention", spec.retention},
          {"adapt", kAdapts[static_cast<int>(spec.adapt)]},
          {"query_heads", spec.query_heads},
          {"reference_stride", spec.reference_stride},
          {"scale", spec.scale},
          {"heads", heads}};
}

Json past_json(const ProceduralImage& image) {
  Json blocks = Json::array();
  for (const auto& block : image.blocks)
    blocks.push_back({block.first, block.last, block.level, block.tick, block.reach});
  return {{"sealed", image.sealed},
          {"blocks", blocks},
          {"full", image.full},
          {"whole", image.whole},
          {"lost", image.lost},
          {"strain", image.strain},
          {"rows", image.rows},
          {"retained", image.retained},
          {"retain_stride", image.retain_stride},
          {"blocks_seen", image.blocks_seen},
          {"blocks_sealed", image.counts.blocks_sealed},
          {"consolidations", image.counts.consolidations},
          {"thinned", image.counts.thinned},
          {"shed_soft", image.counts.shed_soft},
          {"shed_hard", image.counts.shed_hard},
          {"level_hits", image.counts.level_hits},
          {"fits_rejected", image.counts.fits_rejected},
          {"shed_mass", image.counts.shed_mass},
          {"mass_error_sum", image.counts.log_mass_error},
          {"mass_errors", image.mass_errors}};
}

Json spec_json(const KvSpec& spec) {
  // Layers share a few rotations, which stand once.
  Json layers = Json::array(), ropes = Json::array();
  for (const auto& layer : spec.layers) {
    layers.push_back({{"kv_heads", layer.kv_heads},
                      {"head_dim", layer.head_dim},
                      {"window", optional_number(layer.window)}});
    if (layer.frequencies.empty()) continue;
    const Json rope = layer.frequencies;
    std::size_t index = 0;
    while (index < ropes.size() && ropes[index] != rope) ++index;
    if (index == ropes.size()) ropes.push_back(rope);
    layers.back()["rope"] = index;
  }
  Json rolling = nullptr;
  if (spec.rolling) rolling = {{"sinks", spec.rolling->sinks}, {"window", spec.rolling->window}};
  Json recurrent = Json::array();
  for (const auto& tensor : spec.recurrent)
    recurrent.push_back(
        {{"name", tensor.name}, {"dtype", dtype_info(tensor.dtype).name}, {"shape", tensor.shape}});
  return {{"layers", layers},
          {"key_type", dtype_info(spec.key_type).name},
          {"value_type", dtype_info(spec.value_type).name},
          {"capacity", spec.capacity},
          {"max_append", spec.max_append},
          {"slack", spec.slack},
          {"rotary", spec.rotary},
          {"rolling", rolling},
          {"procedural", spec.procedural ? procedural_json(*spec.procedural) : Json(nullptr)},
          {"ropes", ropes},
          {"recurrent", recurrent}};
}

[[noreturn]] void refuse(std::string_view key, std::string_view wanted) {
  throw Error(ErrorCode::bad_format, cat("the header's '", key, "' must be ", wanted));
}

const Json& field(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) refuse(key, "there");
  return *found;
}

std::int64_t integer(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (!value.is_number_integer()) refuse(key, "an integer");
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > (std::uint64_t{1} << 62))
    refuse(key, "below 2^62");
  const auto number = value.get<std::int64_t>();
  if (number < -(std::int64_t{1} << 62)) refuse(key, "above -2^62");
  return number;
}

std::optional<std::int64_t> optional_integer(const Json& object, const char* key) {
  if (field(object, key).is_null()) return std::nullopt;
  return integer(object, key);
}

int small_integer(const Json& object, const char* key) {
  const std::int64_t number = integer(object, key);
  if (number < 0 || number > 65536) refuse(key, "between 0 and 65536");
  return static_cast<int>(number);
}

std::uint64_t size(const Json& object, const char* key) {
  const std::int64_t number = integer(object, key);
  if (number < 0) refuse(key, "at least 0");
  return static_cast<std::uint64_t>(number);
}

bool boolean(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (!value.is_boolean()) refuse(key, "true or false");
  return value.get<bool>();
}

std::string text(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (!value.is_string()) refuse(key, "a string");
  return value.get<std::string>();
}

const Json& list(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (!value.is_array()) refuse(key, "a list");
  return value;
}

const Json& object_at(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (!value.is_object()) refuse(key, "an object");
  return value;
}

std::vector<std::int64_t> integers(const Json& object, const char* key) {
  std::vector<std::int64_t> values;
  for (const Json& value : list(object, key)) {
    const Json wrapped = {{key, value}};
    values.push_back(integer(wrapped, key));
  }
  return values;
}

DType dtype(const Json& object, const char* key) {
  const auto found = dtype_from_name(text(object, key));
  if (!found || (*found != DType::f32 && *found != DType::f16 && *found != DType::q8_0))
    refuse(key, "f32, f16 or q8_0");
  return *found;
}

// Heads that keep every row may have q4_0, too.
DType dtype_of_full_rows(const Json& object, const char* key) {
  const auto found = dtype_from_name(text(object, key));
  if (found && *found == DType::q4_0) return *found;
  return dtype(object, key);
}

double number(const Json& object, const char* key) {
  const Json& value = field(object, key);
  if (!value.is_number()) refuse(key, "a number");
  return value.get<double>();
}

template <class Choice, std::size_t kCount>
Choice choice(const Json& object, const char* key, const char* const (&names)[kCount]) {
  const std::string name = text(object, key);
  for (std::size_t i = 0; i < kCount; ++i)
    if (name == names[i]) return static_cast<Choice>(i);
  refuse(key, "a choice that this program knows");
}

std::vector<std::int64_t> integers(const Json& value) {
  const Json wrapped = {{"list", value}};
  return integers(wrapped, "list");
}

std::vector<std::vector<double>> numbers(const Json& object, const char* key) {
  std::vector<std::vector<double>> rows;
  for (const Json& row : list(object, key)) {
    if (!row.is_array()) refuse(key, "a list of lists of numbers");
    rows.emplace_back();
    for (const Json& value : row) {
      if (!value.is_number()) refuse(key, "a list of lists of numbers");
      rows.back().push_back(value.get<double>());
    }
  }
  return rows;
}

ProceduralSpec read_procedural(const Json& json) {
  ProceduralSpec spec;
  spec.sinks = integer(json, "sinks");
  spec.window = integer(json, "window");
  spec.block = integer(json, "block");
  spec.summaries = integer(json, "summaries");
  spec.summary = choice<Summary>(json, "summary", kSummaries);
  spec.score = choice<RowScore>(json, "score", kScores);
  spec.row_type = spec.full_type = dtype(json, "row_type");
  if (json.contains("full_type")) spec.full_type = dtype_of_full_rows(json, "full_type");
  spec.full_rows = integer(json, "full_rows");
  spec.far = choice<FarRule>(json, "far", kFarRules);
  spec.far_from = integer(json, "far_from");
  spec.levels = small_integer(json, "levels");
  for (const Json& pin : list(json, "pins")) {
    const auto values = integers(pin);
    if (values.size() != 2) refuse("pins", "a list of [first, last]");
    spec.pins.push_back({values[0], values[1]});
  }
  spec.level_rows = integer(json, "level_rows");
  spec.shed_below = static_cast<float>(number(json, "shed_below"));
  spec.decay = static_cast<float>(number(json, "decay"));
  spec.retention = static_cast<float>(number(json, "retention"));
  spec.adapt = choice<Adapt>(json, "adapt", kAdapts);
  spec.query_heads = small_integer(json, "query_heads");
  spec.reference_stride = integer(json, "reference_stride");
  spec.scale = static_cast<float>(number(json, "scale"));
  for (const Json& layer : list(json, "heads")) {
    if (!layer.is_array()) refuse("heads", "a list of lists");
    spec.heads.emplace_back();
    for (const Json& plan : layer) {
      if (!plan.is_object()) refuse("heads", "lists of objects");
      spec.heads.back().push_back({boolean(plan, "full"), boolean(plan, "whole"), integer(plan, "rows"),
                                   static_cast<float>(number(plan, "weight"))});
    }
  }
  return spec;
}

ProceduralImage read_past(const Json& json) {
  ProceduralImage image;
  image.sealed = integer(json, "sealed");
  for (const Json& block : list(json, "blocks")) {
    const auto values = integers(block);
    if (values.size() != 5 || values[2] < 1 || values[2] > 8 || values[3] < 0)
      refuse("blocks", "a list of [first, last, level, tick, reach]");
    image.blocks.push_back({values[0], values[1], static_cast<int>(values[2]), values[3], values[4]});
  }
  image.full = integers(json, "full");
  image.whole = integers(json, "whole");
  image.lost = numbers(json, "lost");
  image.strain = numbers(json, "strain");
  for (const Json& layer : list(json, "rows")) {
    if (!layer.is_array()) refuse("rows", "a list of lists");
    image.rows.emplace_back();
    for (const Json& head : layer) image.rows.back().push_back(integers(head));
  }
  image.retained = integers(json, "retained");
  image.retain_stride = integer(json, "retain_stride");
  image.blocks_seen = integer(json, "blocks_seen");
  image.counts.blocks_sealed = integer(json, "blocks_sealed");
  image.counts.consolidations = integer(json, "consolidations");
  image.counts.thinned = integer(json, "thinned");
  image.counts.shed_soft = integer(json, "shed_soft");
  image.counts.shed_hard = integer(json, "shed_hard");
  image.counts.level_hits = integer(json, "level_hits");
  image.counts.fits_rejected = integer(json, "fits_rejected");
  image.counts.shed_mass = number(json, "shed_mass");
  image.counts.log_mass_error = number(json, "mass_error_sum");
  image.mass_errors = integer(json, "mass_errors");
  return image;
}

// Frequencies of the rotation that a layer names; files that were written without any have no such keys.
std::vector<double> read_rope(const Json& spec, const Json& layer) {
  std::vector<double> frequencies;
  if (!layer.contains("rope")) return frequencies;
  const std::uint64_t index = size(layer, "rope");
  const Json& ropes = list(spec, "ropes");
  if (index >= ropes.size() || !ropes[index].is_array())
    refuse("ropes", "a list with the rope of every layer");
  for (const Json& frequency : ropes[index]) {
    if (!frequency.is_number()) refuse("ropes", "a list of lists of numbers");
    frequencies.push_back(frequency.get<double>());
  }
  return frequencies;
}

KvSpec read_spec(const Json& json) {
  KvSpec spec;
  for (const Json& layer : list(json, "layers")) {
    if (!layer.is_object()) refuse("layers", "a list of objects");
    spec.layers.push_back({small_integer(layer, "kv_heads"), small_integer(layer, "head_dim"),
                           optional_integer(layer, "window"), read_rope(json, layer)});
  }
  if (json.contains("recurrent"))
    for (const Json& tensor : list(json, "recurrent")) {
      if (!tensor.is_object()) refuse("recurrent", "a list of objects");
      spec.recurrent.push_back({text(tensor, "name"), dtype(tensor, "dtype"), integers(tensor, "shape")});
    }
  spec.key_type = dtype(json, "key_type");
  spec.value_type = dtype(json, "value_type");
  spec.capacity = integer(json, "capacity");
  spec.max_append = integer(json, "max_append");
  spec.slack = integer(json, "slack");
  spec.rotary = boolean(json, "rotary");
  if (!field(json, "rolling").is_null()) {
    const Json& rolling = object_at(json, "rolling");
    spec.rolling = Rolling{integer(rolling, "sinks"), integer(rolling, "window")};
  }
  if (const auto found = json.find("procedural"); found != json.end() && !found->is_null()) {
    spec.procedural = read_procedural(object_at(json, "procedural"));
    for (const LayerSpec& layer : spec.layers) spec.procedural->frequencies.push_back(layer.frequencies);
  }
  return spec;
}

SnapshotHeader read(const Json& json) {
  if (!json.is_object() || text(json, "format") != "kvtide-state") refuse("format", "\"kvtide-state\"");
  SnapshotHeader header;
  header.image.spec = read_spec(object_at(json, "spec"));
  header.image.position = integer(json, "position");
  header.image.attention_size = optional_integer(json, "attention_size");
  // Files from before there were such sizes lack the key.
  if (const auto found = json.find("auto_attention"); found != json.end() && !found->is_null()) {
    const Json& log = object_at(json, "auto_attention");
    header.image.adapting = {{integer(log, "smallest"), integer(log, "largest")}, integer(log, "first"), {}};
    for (const std::int64_t share : integers(log, "samples")) {
      if (share < 0 || share > kWholeShare) refuse("samples", "a list of shares from 0 to 1000000");
      header.image.adapting->samples.push_back(static_cast<std::int32_t>(share));
    }
  }
  for (const Json& segment : list(json, "segments")) {
    const Json wrapped = {{"segments", segment}};
    const auto values = integers(wrapped, "segments");
    if (values.size() != 3) refuse("segments", "a list of [first, last, shift]");
    header.image.segments.push_back({values[0], values[1], values[2]});
  }
  header.image.released = integers(json, "released");
  header.image.forgotten = integers(json, "forgotten");
  header.image.edited = integer(json, "edited");
  for (const auto& [key, value] : object_at(json, "identity").items()) {
    if (!value.is_string()) refuse("identity", "an object of strings");
    header.extras.identity[key] = value.get<std::string>();
  }
  header.extras.exact = boolean(json, "exact");
  for (const std::int64_t id : integers(json, "tokens")) {
    if (id < 0 || id > (std::int64_t{1} << 30)) refuse("tokens", "a list of token ids");
    header.extras.tokens.push_back(static_cast<TokenId>(id));
  }
  if (const auto found = json.find("past"); found != json.end() && !found->is_null())
    header.image.past = read_past(object_at(json, "past"));
  header.payload_bytes = size(json, "payload_bytes");
  for (const Json& tensor : list(json, "tensors")) {
    if (!tensor.is_object()) refuse("tensors", "a list of objects");
    std::optional<DType> type;
    if (text(tensor, "dtype") != "i32") type = dtype_of_full_rows(tensor, "dtype");
    header.tensors.push_back({text(tensor, "name"), type, integers(tensor, "shape"), integer(tensor, "first"),
                              size(tensor, "offset"), size(tensor, "bytes")});
  }
  return header;
}

}  // namespace

std::string write_header(const SnapshotHeader& header) {
  Json segments = Json::array();
  for (const Segment& s : header.image.segments) segments.push_back({s.first, s.last, s.shift});
  Json tensors = Json::array();
  for (const auto& t : header.tensors)
    tensors.push_back({{"name", t.name},
                       {"dtype", t.dtype ? dtype_info(*t.dtype).name : "i32"},
                       {"shape", t.shape},
                       {"first", t.first},
                       {"offset", t.offset},
                       {"bytes", t.bytes}});
  Json adapting = nullptr;
  if (const auto& log = header.image.adapting)
    adapting = {{"smallest", log->range.smallest},
                {"largest", log->range.largest},
                {"first", log->first},
                {"samples", log->samples}};
  const Json json = {{"format", "kvtide-state"},
                     {"identity", header.extras.identity},
                     {"exact", header.extras.exact},
                     {"spec", spec_json(header.image.spec)},
                     {"position", header.image.position},
                     {"attention_size", optional_number(header.image.attention_size)},
                     {"auto_attention", adapting},
                     {"segments", segments},
                     {"released", header.image.released},
                     {"forgotten", header.image.forgotten},
                     {"edited", header.image.edited},
                     {"past", header.image.past ? past_json(*header.image.past) : Json(nullptr)},
                     {"tokens", header.extras.tokens},
                     {"payload_bytes", header.payload_bytes},
                     {"tensors", tensors}};
  return json.dump();
}

SnapshotHeader read_header(std::string_view json) {
  // A header nests four levels deep; brackets beyond that are refused before a tree is built from them.
  int depth = 0;
  const auto shallow = [&](int, Json::parse_event_t event, Json&) {
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) ++depth;
    if (event == Json::parse_event_t::object_end || event == Json::parse_event_t::array_end) --depth;
    if (depth > 8) throw Error(ErrorCode::bad_format, "the header nests too deeply");
    return true;
  };
  try {
    return read(Json::parse(json.begin(), json.end(), shallow));
  } catch (const Json::exception&) {
    throw Error(ErrorCode::bad_format, "the header is not valid JSON");
  }
}

}  // namespace kvtide
