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
  header.payload_bytes = size(json, "payload_bytes");
  for (const Json& tensor : list(json, "tensors")) {
    if (!tensor.is_object()) refuse("tensors", "a list of objects");
    header.tensors.push_back({text(tensor, "name"), dtype(tensor, "dtype"), integers(tensor, "shape"),
                              integer(tensor, "first"), size(tensor, "offset"), size(tensor, "bytes")});
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
                       {"dtype", dtype_info(t.dtype).name},
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
