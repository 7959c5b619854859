// snapshot_header_read.cpp: the JSON header of a snapshot, every value typed and in range.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "base/json/json_fields.h"
#include "state/snapshot_header.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMostCounted = std::int64_t{1} << 62;

std::int64_t integer(const JsonFields& json, std::string_view key) {
  return json.count(key, -kMostCounted, kMostCounted);
}

// The key must be there; null: none.
std::optional<std::int64_t> optional_integer(const JsonFields& json, std::string_view key) {
  if (json.is_null(key)) return std::nullopt;
  return integer(json, key);
}

int small_integer(const JsonFields& json, std::string_view key) {
  return static_cast<int>(json.count(key, 0, 65536));
}

std::uint64_t size(const JsonFields& json, std::string_view key) {
  return static_cast<std::uint64_t>(json.count(key, 0, kMostCounted));
}

float single(const JsonFields& json, std::string_view key) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return static_cast<float>(json.real(key, -kLargest, kLargest));
}

double number(const JsonFields& json, std::string_view key) {
  constexpr double kLargest = std::numeric_limits<double>::max();
  return json.real(key, -kLargest, kLargest);
}

std::vector<std::int64_t> integers(const JsonFields& json, std::string_view key) {
  return json.numbers<std::vector<std::int64_t>>(key, -kMostCounted, kMostCounted);
}

// A list of lists of `wide` whole numbers each; form: how one of them is written.
std::vector<std::vector<std::int64_t>> tuples(const JsonFields& json, std::string_view key, std::size_t wide,
                                              std::string_view form) {
  auto items = json.numbers<std::vector<std::vector<std::int64_t>>>(key, -kMostCounted, kMostCounted);
  for (const auto& item : items)
    if (item.size() != wide) json.wrong(key, form);
  return items;
}

DType dtype(const JsonFields& json, std::string_view key) {
  const auto found = dtype_from_name(json.required_text(key));
  if (!found || (*found != DType::f32 && *found != DType::f16 && *found != DType::q8_0))
    json.wrong(key, "f32, f16 or q8_0");
  return *found;
}

// Rows of the past may have q4_0, too.
DType dtype_of_rows(const JsonFields& json, std::string_view key) {
  return json.required_text(key) == "q4_0" ? DType::q4_0 : dtype(json, key);
}

// Fields of a procedural memory's options, as the writer has them.
void read(const JsonFields& json, std::string_view key, std::int64_t& value) { value = integer(json, key); }
void read(const JsonFields& json, std::string_view key, int& value) {
  value = static_cast<int>(json.count(key, -65536, 65536));
}
void read(const JsonFields& json, std::string_view key, float& value) { value = single(json, key); }
void read(const JsonFields& json, std::string_view key, std::vector<PosRange>& ranges) {
  for (const auto& range : tuples(json, key, 2, "a list of [first, last]"))
    ranges.push_back({range[0], range[1]});
}
template <class Choice>
requires std::is_enum_v<Choice>
void read(const JsonFields& json, std::string_view key, Choice& value) {
  const std::string name = json.required_text(key);
  const auto names = names_of(value);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) json.wrong(key, "a choice that this program knows");
  value = static_cast<Choice>(found - names.begin());
}

RowType chosen_type(DType type) {
  return type == DType::q4_0 ? RowType::q4_0 : type == DType::q8_0 ? RowType::q8_0 : RowType::f16;
}

// What older files do not tell, from what they do.
void fill_in_what_was_chosen(ProceduralSpec& spec, int minor) {
  spec.row_type = chosen_type(spec.plain_type);
  spec.full_type = chosen_type(spec.copy_type);
  spec.exact_first = !spec.stages.empty();
  if (minor == 0) spec.rows = rows_of_plans(spec);
  if (minor < 5) spec.window_type = WindowType::as_written;
}

ProceduralSpec read_procedural(const JsonFields& json, int minor) {
  ProceduralSpec spec;
  visit(spec, [&](const ProceduralField& field, auto& value) {
    if constexpr (requires { read(json, field.name, value); })
      if (field.since >= 0 && field.since <= minor) read(json, field.name, value);
  });
  spec.plain_type = spec.copy_type = dtype_of_rows(json, "row_type");
  if (json.contains("full_type")) spec.copy_type = dtype_of_rows(json, "full_type");
  if (minor >= 3)
    for (const JsonFields& stage : json.objects("stages"))
      spec.stages.push_back(
          {dtype_of_rows(stage, "key_type"), dtype_of_rows(stage, "value_type"), integer(stage, "until")});
  spec.far_from = integer(json, "far_from");
  spec.query_heads = small_integer(json, "query_heads");
  spec.reference_stride = integer(json, "reference_stride");
  if (minor >= 4) {
    spec.reference_span = integer(json, "reference_span");
    spec.reference_from = integer(json, "reference_from");
  }
  if (minor >= 6) spec.reference_type = dtype_of_rows(json, "reference_type");
  if (minor >= 7) spec.keeps_scores = json.flag("keeps_scores");
  spec.scale = single(json, "scale");
  for (const JsonValue& layer : json.list("heads")) {
    if (layer.list() == nullptr) json.wrong("heads", "a list of lists of objects");
    spec.plans.emplace_back();
    for (const JsonValue& item : *layer.list()) {
      const JsonFields plan(item, json.file(), "spec.procedural.heads.");
      spec.plans.back().push_back(
          {plan.flag("full"), plan.flag("whole"), integer(plan, "rows"), single(plan, "weight")});
    }
  }
  fill_in_what_was_chosen(spec, minor);
  return spec;
}

ProceduralImage read_past(const JsonFields& json, int minor) {
  constexpr std::string_view kBlock = "a list of [first, last, level, tick, reach]";
  ProceduralImage image;
  image.sealed = integer(json, "sealed");
  for (const auto& block : tuples(json, "blocks", 5, kBlock)) {
    if (block[2] < 1 || block[2] > 8 || block[3] < 0) json.wrong("blocks", kBlock);
    image.blocks.push_back({block[0], block[1], static_cast<int>(block[2]), block[3], block[4]});
  }
  image.full = integers(json, "full");
  image.whole = integers(json, "whole");
  image.lost = json.numbers<std::vector<std::vector<double>>>("lost");
  image.strain = json.numbers<std::vector<std::vector<double>>>("strain");
  image.rows =
      json.numbers<std::vector<std::vector<std::vector<std::int64_t>>>>("rows", -kMostCounted, kMostCounted);
  if (minor >= 4) image.observed = json.flag("observed");
  image.mean_keys = minor >= 5 && json.flag("mean_keys");
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

KvSpec read_spec(const JsonFields& json, int minor) {
  KvSpec spec;
  // Files that were written without any rotation have no such keys.
  std::vector<std::vector<double>> ropes;
  if (json.contains("ropes")) ropes = json.numbers<std::vector<std::vector<double>>>("ropes");
  for (const JsonFields& layer : json.objects("layers")) {
    spec.layers.push_back({small_integer(layer, "kv_heads"),
                           small_integer(layer, "head_dim"),
                           optional_integer(layer, "window"),
                           {},
                           layer.flag("values_in_keys", false)});
    if (!layer.contains("rope")) continue;
    const std::uint64_t rope = size(layer, "rope");
    if (rope >= ropes.size()) layer.wrong("rope", "the number of one of the ropes");
    spec.layers.back().frequencies = ropes[rope];
  }
  if (json.contains("recurrent"))
    for (const JsonFields& tensor : json.objects("recurrent"))
      spec.recurrent.push_back(
          {tensor.required_text("name"), dtype(tensor, "dtype"), integers(tensor, "shape")});
  spec.key_type = dtype_of_rows(json, "key_type");
  spec.value_type = dtype_of_rows(json, "value_type");
  spec.capacity = integer(json, "capacity");
  spec.max_step = integer(json, "max_append");
  spec.slack = integer(json, "slack");
  spec.rotary = json.flag("rotary");
  if (!json.is_null("rolling")) {
    const JsonFields rolling = json.required_child("rolling");
    spec.rolling = Rolling{integer(rolling, "sinks"), integer(rolling, "window")};
  }
  // Files from before 1.2 have no checkpoints.
  if (const auto checkpoints = json.child("checkpoints"))
    spec.checkpoints = {integer(*checkpoints, "every"), integer(*checkpoints, "budget")};
  if (const auto procedural = json.child("procedural")) {
    spec.procedural = read_procedural(*procedural, minor);
    for (const LayerSpec& layer : spec.layers) spec.procedural->frequencies.push_back(layer.frequencies);
  }
  return spec;
}

AutoAttentionLog read_adapting(const JsonFields& json) {
  AutoAttentionLog log{{integer(json, "smallest"), integer(json, "largest")}, integer(json, "first"), {}};
  for (const std::int64_t share : json.numbers<std::vector<std::int64_t>>("samples", 0, kWholeShare))
    log.samples.push_back(static_cast<std::int32_t>(share));
  return log;
}

StateImage read_image(const JsonFields& json, int minor) {
  StateImage image;
  image.spec = read_spec(json.required_child("spec"), minor);
  image.position = integer(json, "position");
  image.attention_size = optional_integer(json, "attention_size");
  // Files from before there were such sizes lack the key.
  if (const auto log = json.child("auto_attention")) image.adapting = read_adapting(*log);
  for (const auto& segment : tuples(json, "segments", 3, "a list of [first, last, shift]"))
    image.segments.push_back({segment[0], segment[1], segment[2]});
  image.released = integers(json, "released");
  image.forgotten = integers(json, "forgotten");
  image.edited = integer(json, "edited");
  if (json.contains("checkpoints")) image.checkpoints = integers(json, "checkpoints");
  if (const auto past = json.child("past")) image.past = read_past(*past, minor);
  return image;
}

SnapshotExtras read_extras(const JsonFields& json) {
  SnapshotExtras extras;
  const JsonValue* identity = json.find("identity");
  if (identity == nullptr || identity->object() == nullptr) json.wrong("identity", "an object of strings");
  for (const auto& [key, name] : *identity->object()) {
    if (name.text() == nullptr) json.wrong("identity", "an object of strings");
    extras.identity[key] = *name.text();
  }
  extras.exact = json.flag("exact");
  for (const std::int64_t id : json.numbers<std::vector<std::int64_t>>("tokens", 0, std::int64_t{1} << 30))
    extras.tokens.push_back(static_cast<TokenId>(id));
  return extras;
}

}  // namespace

SnapshotHeader read_header(std::string_view text) {
  const JsonValue value = JsonValue::parse(text, "its header");
  const JsonFields json(value, "its header");
  if (json.required_text("format") != "kvtide-state") json.wrong("format", "\"kvtide-state\"");
  SnapshotHeader header;
  header.minor = json.contains("minor") ? small_integer(json, "minor") : 0;
  header.image = read_image(json, header.minor);
  header.extras = read_extras(json);
  header.payload_bytes = size(json, "payload_bytes");
  for (const JsonFields& tensor : json.objects("tensors")) {
    std::optional<DType> type;
    if (tensor.required_text("dtype") != "i32") type = dtype_of_rows(tensor, "dtype");
    header.tensors.push_back({tensor.required_text("name"), type, integers(tensor, "shape"),
                              integer(tensor, "first"), size(tensor, "offset"), size(tensor, "bytes")});
  }
  return header;
}

}  // namespace kvtide
