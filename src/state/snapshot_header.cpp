#include "state/snapshot_header.h"

#include <algorithm>
#include <type_traits>

#include "base/json/json_line.h"
#include "base/json/json_value.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

// The fields of a procedural memory's options, by their types.
void write(JsonLine& json, std::int64_t value) { json.value(value); }
void write(JsonLine& json, int value) { json.value(value); }
void write(JsonLine& json, float value) { json.value(value); }
void write(JsonLine& json, const std::vector<PosRange>& ranges) {
  json.list([&] {
    for (const PosRange& range : ranges) json.value(std::vector{range.first, range.last});
  });
}
template <class Choice>
requires std::is_enum_v<Choice>
void write(JsonLine& json, Choice choice) { json.value(name_of(choice)); }

// The frequencies are those of the layers.
void write(JsonLine& json, const ProceduralSpec& spec) {
  visit(spec, [&](const ProceduralField& field, const auto& value) {
    if constexpr (requires { write(json, value); })
      if (field.since >= 0) {
        json.key(field.name);
        write(json, value);
      }
  });
  json.member("row_type", dtype_info(spec.row_type).name);
  json.member("full_type", dtype_info(spec.copy_type).name);
  json.member("far_from", spec.far_from);
  json.member("query_heads", spec.query_heads);
  json.member("reference_stride", spec.reference_stride);
  json.member("scale", spec.scale);
  json.key("heads");
  json.list([&] {
    for (const auto& layer : spec.plans)
      json.list([&] {
        for (const HeadPlan& plan : layer)
          json.object([&] {
            json.member("full", plan.full);
            json.member("whole", plan.whole);
            json.member("rows", plan.rows);
            json.member("weight", plan.weight);
          });
      });
  });
}

void write(JsonLine& json, const ProceduralImage& image) {
  json.member("sealed", image.sealed);
  json.key("blocks");
  json.list([&] {
    for (const auto& block : image.blocks)
      json.value(std::vector<std::int64_t>{block.first, block.last, block.level, block.tick, block.reach});
  });
  json.member("full", image.full);
  json.member("whole", image.whole);
  json.member("lost", image.lost);
  json.member("strain", image.strain);
  json.member("rows", image.rows);
  json.member("retained", image.retained);
  json.member("retain_stride", image.retain_stride);
  json.member("blocks_seen", image.blocks_seen);
  json.member("blocks_sealed", image.counts.blocks_sealed);
  json.member("consolidations", image.counts.consolidations);
  json.member("thinned", image.counts.thinned);
  json.member("shed_soft", image.counts.shed_soft);
  json.member("shed_hard", image.counts.shed_hard);
  json.member("level_hits", image.counts.level_hits);
  json.member("fits_rejected", image.counts.fits_rejected);
  json.member("shed_mass", image.counts.shed_mass);
  json.member("mass_error_sum", image.counts.log_mass_error);
  json.member("mass_errors", image.mass_errors);
}

void write(JsonLine& json, const KvSpec& spec) {
  // Layers share a few rotations, which stand once.
  std::vector<std::vector<double>> ropes;
  json.key("layers");
  json.list([&] {
    for (const auto& layer : spec.layers)
      json.object([&] {
        json.member("kv_heads", layer.kv_heads);
        json.member("head_dim", layer.head_dim);
        json.member("window", layer.window);
        if (layer.frequencies.empty()) return;
        const auto found = std::find(ropes.begin(), ropes.end(), layer.frequencies);
        json.member("rope", found - ropes.begin());
        if (found == ropes.end()) ropes.push_back(layer.frequencies);
      });
  });
  json.member("key_type", dtype_info(spec.key_type).name);
  json.member("value_type", dtype_info(spec.value_type).name);
  json.member("capacity", spec.capacity);
  json.member("max_append", spec.max_step);
  json.member("slack", spec.slack);
  json.member("rotary", spec.rotary);
  json.key("rolling");
  if (const auto& rolling = spec.rolling)
    json.object([&] {
      json.member("sinks", rolling->sinks);
      json.member("window", rolling->window);
    });
  else
    json.value(nullptr);
  json.key("procedural");
  if (spec.procedural)
    json.object([&] { write(json, *spec.procedural); });
  else
    json.value(nullptr);
  json.member("ropes", ropes);
  json.key("recurrent");
  json.list([&] {
    for (const auto& tensor : spec.recurrent)
      json.object([&] {
        json.member("name", tensor.name);
        json.member("dtype", dtype_info(tensor.dtype).name);
        json.member("shape", tensor.shape);
      });
  });
}

[[noreturn]] void refuse_header(std::string_view key, std::string_view wanted) {
  throw Error(ErrorCode::bad_format, cat("the header's '", key, "' must be ", wanted));
}

const JsonValue& field(const JsonValue& object, const char* key) {
  const JsonValue* found = object.find(key);
  if (found == nullptr) refuse_header(key, "there");
  return *found;
}

std::int64_t integer_of(const JsonValue& value, const char* key) {
  if (value.integer() == nullptr) refuse_header(key, "an integer of 63 bits");
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  if (*value.integer() > kMost || *value.integer() < -kMost) refuse_header(key, "between -2^62 and 2^62");
  return *value.integer();
}

std::int64_t integer(const JsonValue& object, const char* key) { return integer_of(field(object, key), key); }

std::optional<std::int64_t> optional_integer(const JsonValue& object, const char* key) {
  if (field(object, key).is_null()) return std::nullopt;
  return integer(object, key);
}

int small_integer(const JsonValue& object, const char* key) {
  const std::int64_t number = integer(object, key);
  if (number < 0 || number > 65536) refuse_header(key, "between 0 and 65536");
  return static_cast<int>(number);
}

std::uint64_t size(const JsonValue& object, const char* key) {
  const std::int64_t number = integer(object, key);
  if (number < 0) refuse_header(key, "at least 0");
  return static_cast<std::uint64_t>(number);
}

bool boolean(const JsonValue& object, const char* key) {
  const bool* value = field(object, key).boolean();
  if (value == nullptr) refuse_header(key, "true or false");
  return *value;
}

const std::string& text(const JsonValue& object, const char* key) {
  const std::string* value = field(object, key).text();
  if (value == nullptr) refuse_header(key, "a string");
  return *value;
}

const JsonValue::List& list_of(const JsonValue& value, const char* key, const char* wanted = "a list") {
  if (value.list() == nullptr) refuse_header(key, wanted);
  return *value.list();
}

const JsonValue::List& list(const JsonValue& object, const char* key) {
  return list_of(field(object, key), key);
}

const JsonValue& object_at(const JsonValue& object, const char* key) {
  const JsonValue& value = field(object, key);
  if (value.object() == nullptr) refuse_header(key, "an object");
  return value;
}

const JsonValue& checked_object(const JsonValue& value, const char* key) {
  if (value.object() == nullptr) refuse_header(key, "a list of objects");
  return value;
}

std::vector<std::int64_t> integers_of(const JsonValue& value, const char* key) {
  std::vector<std::int64_t> values;
  for (const JsonValue& item : list_of(value, key)) values.push_back(integer_of(item, key));
  return values;
}

std::vector<std::int64_t> integers(const JsonValue& object, const char* key) {
  return integers_of(field(object, key), key);
}

DType dtype(const JsonValue& object, const char* key) {
  const auto found = dtype_from_name(text(object, key));
  if (!found || (*found != DType::f32 && *found != DType::f16 && *found != DType::q8_0))
    refuse_header(key, "f32, f16 or q8_0");
  return *found;
}

// Heads that keep every row may have q4_0, too.
DType dtype_of_full_rows(const JsonValue& object, const char* key) {
  const auto found = dtype_from_name(text(object, key));
  if (found && *found == DType::q4_0) return *found;
  return dtype(object, key);
}

double number_of(const JsonValue& value, const char* key, const char* wanted = "a number") {
  const std::optional<double> number = value.number();
  if (!number) refuse_header(key, wanted);
  return *number;
}

double number(const JsonValue& object, const char* key) { return number_of(field(object, key), key); }

std::vector<double> numbers_of(const JsonValue& value, const char* key) {
  constexpr const char* kWanted = "a list of lists of numbers";
  std::vector<double> numbers;
  for (const JsonValue& item : list_of(value, key, kWanted)) numbers.push_back(number_of(item, key, kWanted));
  return numbers;
}

std::vector<std::vector<double>> numbers(const JsonValue& object, const char* key) {
  std::vector<std::vector<double>> rows;
  for (const JsonValue& row : list(object, key)) rows.push_back(numbers_of(row, key));
  return rows;
}

// Fields of a procedural memory's options, as write() has them.
void read(const JsonValue& object, const char* key, std::int64_t& value) { value = integer(object, key); }
void read(const JsonValue& object, const char* key, int& value) {
  const std::int64_t number = integer(object, key);
  if (number < -65536 || number > 65536) refuse_header(key, "between -65536 and 65536");
  value = static_cast<int>(number);
}
void read(const JsonValue& object, const char* key, float& value) {
  value = static_cast<float>(number(object, key));
}
void read(const JsonValue& object, const char* key, std::vector<PosRange>& ranges) {
  for (const JsonValue& range : list(object, key)) {
    const auto values = integers_of(range, key);
    if (values.size() != 2) refuse_header(key, "a list of [first, last]");
    ranges.push_back({values[0], values[1]});
  }
}
template <class Choice>
requires std::is_enum_v<Choice>
void read(const JsonValue& object, const char* key, Choice& value) {
  const std::string& name = text(object, key);
  const auto names = names_of(value);
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) refuse_header(key, "a choice that this program knows");
  value = static_cast<Choice>(found - names.begin());
}

// What files of format 1.0 do not tell, from what they do.
void fill_in_what_was_chosen(ProceduralSpec& spec, int minor) {
  spec.half_precision = spec.row_type == DType::f16;
  spec.full_type = spec.copy_type == DType::q4_0   ? FullType::q4_0
                   : spec.copy_type == DType::q8_0 ? FullType::q8_0
                                                   : FullType::f16;
  if (minor == 0) spec.rows = rows_of_plans(spec);
}

ProceduralSpec read_procedural(const JsonValue& json, int minor) {
  ProceduralSpec spec;
  visit(spec, [&](const ProceduralField& field, auto& value) {
    if constexpr (requires { read(json, "", value); })
      if (field.since >= 0 && field.since <= minor) read(json, field.name.data(), value);
  });
  spec.row_type = spec.copy_type = dtype(json, "row_type");
  if (json.find("full_type") != nullptr) spec.copy_type = dtype_of_full_rows(json, "full_type");
  spec.far_from = integer(json, "far_from");
  spec.query_heads = small_integer(json, "query_heads");
  spec.reference_stride = integer(json, "reference_stride");
  spec.scale = static_cast<float>(number(json, "scale"));
  for (const JsonValue& layer : list(json, "heads")) {
    spec.plans.emplace_back();
    for (const JsonValue& plan : list_of(layer, "heads", "a list of lists")) {
      if (plan.object() == nullptr) refuse_header("heads", "lists of objects");
      spec.plans.back().push_back({boolean(plan, "full"), boolean(plan, "whole"), integer(plan, "rows"),
                                   static_cast<float>(number(plan, "weight"))});
    }
  }
  fill_in_what_was_chosen(spec, minor);
  return spec;
}

ProceduralImage read_past(const JsonValue& json) {
  ProceduralImage image;
  image.sealed = integer(json, "sealed");
  for (const JsonValue& block : list(json, "blocks")) {
    const auto values = integers_of(block, "blocks");
    if (values.size() != 5 || values[2] < 1 || values[2] > 8 || values[3] < 0)
      refuse_header("blocks", "a list of [first, last, level, tick, reach]");
    image.blocks.push_back({values[0], values[1], static_cast<int>(values[2]), values[3], values[4]});
  }
  image.full = integers(json, "full");
  image.whole = integers(json, "whole");
  image.lost = numbers(json, "lost");
  image.strain = numbers(json, "strain");
  for (const JsonValue& layer : list(json, "rows")) {
    image.rows.emplace_back();
    for (const JsonValue& head : list_of(layer, "rows", "a list of lists"))
      image.rows.back().push_back(integers_of(head, "rows"));
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
std::vector<double> read_rope(const JsonValue& spec, const JsonValue& layer) {
  if (layer.find("rope") == nullptr) return {};
  const std::uint64_t index = size(layer, "rope");
  const JsonValue::List& ropes = list(spec, "ropes");
  if (index >= ropes.size()) refuse_header("ropes", "a list with the rope of every layer");
  return numbers_of(ropes[index], "ropes");
}

KvSpec read_spec(const JsonValue& json, int minor) {
  KvSpec spec;
  for (const JsonValue& item : list(json, "layers")) {
    const JsonValue& layer = checked_object(item, "layers");
    spec.layers.push_back({small_integer(layer, "kv_heads"), small_integer(layer, "head_dim"),
                           optional_integer(layer, "window"), read_rope(json, layer)});
  }
  if (json.find("recurrent") != nullptr)
    for (const JsonValue& item : list(json, "recurrent")) {
      const JsonValue& tensor = checked_object(item, "recurrent");
      spec.recurrent.push_back({text(tensor, "name"), dtype(tensor, "dtype"), integers(tensor, "shape")});
    }
  spec.key_type = dtype(json, "key_type");
  spec.value_type = dtype(json, "value_type");
  spec.capacity = integer(json, "capacity");
  spec.max_step = integer(json, "max_append");
  spec.slack = integer(json, "slack");
  spec.rotary = boolean(json, "rotary");
  if (!field(json, "rolling").is_null()) {
    const JsonValue& rolling = object_at(json, "rolling");
    spec.rolling = Rolling{integer(rolling, "sinks"), integer(rolling, "window")};
  }
  if (const JsonValue* found = json.find("procedural"); found != nullptr && !found->is_null()) {
    spec.procedural = read_procedural(object_at(json, "procedural"), minor);
    for (const LayerSpec& layer : spec.layers) spec.procedural->frequencies.push_back(layer.frequencies);
  }
  return spec;
}

SnapshotHeader read(const JsonValue& json) {
  if (json.object() == nullptr || text(json, "format") != "kvtide-state")
    refuse_header("format", "\"kvtide-state\"");
  SnapshotHeader header;
  header.minor = json.find("minor") == nullptr ? 0 : small_integer(json, "minor");
  header.image.spec = read_spec(object_at(json, "spec"), header.minor);
  header.image.position = integer(json, "position");
  header.image.attention_size = optional_integer(json, "attention_size");
  // Files from before there were such sizes lack the key.
  if (const JsonValue* found = json.find("auto_attention"); found != nullptr && !found->is_null()) {
    const JsonValue& log = object_at(json, "auto_attention");
    header.image.adapting = {{integer(log, "smallest"), integer(log, "largest")}, integer(log, "first"), {}};
    for (const std::int64_t share : integers(log, "samples")) {
      if (share < 0 || share > kWholeShare) refuse_header("samples", "a list of shares from 0 to 1000000");
      header.image.adapting->samples.push_back(static_cast<std::int32_t>(share));
    }
  }
  for (const JsonValue& segment : list(json, "segments")) {
    const auto values = integers_of(segment, "segments");
    if (values.size() != 3) refuse_header("segments", "a list of [first, last, shift]");
    header.image.segments.push_back({values[0], values[1], values[2]});
  }
  header.image.released = integers(json, "released");
  header.image.forgotten = integers(json, "forgotten");
  header.image.edited = integer(json, "edited");
  for (const auto& [key, value] : *object_at(json, "identity").object()) {
    if (value.text() == nullptr) refuse_header("identity", "an object of strings");
    header.extras.identity[key] = *value.text();
  }
  header.extras.exact = boolean(json, "exact");
  for (const std::int64_t id : integers(json, "tokens")) {
    if (id < 0 || id > (std::int64_t{1} << 30)) refuse_header("tokens", "a list of token ids");
    header.extras.tokens.push_back(static_cast<TokenId>(id));
  }
  if (const JsonValue* found = json.find("past"); found != nullptr && !found->is_null())
    header.image.past = read_past(object_at(json, "past"));
  header.payload_bytes = size(json, "payload_bytes");
  for (const JsonValue& item : list(json, "tensors")) {
    const JsonValue& tensor = checked_object(item, "tensors");
    std::optional<DType> type;
    if (text(tensor, "dtype") != "i32") type = dtype_of_full_rows(tensor, "dtype");
    header.tensors.push_back({text(tensor, "name"), type, integers(tensor, "shape"), integer(tensor, "first"),
                              size(tensor, "offset"), size(tensor, "bytes")});
  }
  return header;
}

}  // namespace

std::string write_header(const SnapshotHeader& header) {
  JsonLine json;
  json.object([&] {
    json.member("format", "kvtide-state");
    json.member("minor", header.minor);
    json.key("identity");
    json.object([&] {
      for (const auto& [key, value] : header.extras.identity) json.member(key, value);
    });
    json.member("exact", header.extras.exact);
    json.key("spec");
    json.object([&] { write(json, header.image.spec); });
    json.member("position", header.image.position);
    json.member("attention_size", header.image.attention_size);
    json.key("auto_attention");
    if (const auto& log = header.image.adapting)
      json.object([&] {
        json.member("smallest", log->range.smallest);
        json.member("largest", log->range.largest);
        json.member("first", log->first);
        json.member("samples", log->samples);
      });
    else
      json.value(nullptr);
    json.key("segments");
    json.list([&] {
      for (const Segment& s : header.image.segments) json.value(std::vector{s.first, s.last, s.shift});
    });
    json.member("released", header.image.released);
    json.member("forgotten", header.image.forgotten);
    json.member("edited", header.image.edited);
    json.key("past");
    if (header.image.past)
      json.object([&] { write(json, *header.image.past); });
    else
      json.value(nullptr);
    json.member("tokens", header.extras.tokens);
    json.member("payload_bytes", header.payload_bytes);
    json.key("tensors");
    json.list([&] {
      for (const auto& t : header.tensors)
        json.object([&] {
          json.member("name", t.name);
          json.member("dtype", t.dtype ? dtype_info(*t.dtype).name : "i32");
          json.member("shape", t.shape);
          json.member("first", t.first);
          json.member("offset", t.offset);
          json.member("bytes", t.bytes);
        });
    });
  });
  return json.text();
}

SnapshotHeader read_header(std::string_view json) { return read(JsonValue::parse(json, "its header")); }

}  // namespace kvtide
