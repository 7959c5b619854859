#include "coreml/decode/masked_contract.h"

#include "base/json/json.h"
#include "base/json/json_fields.h"
#include "base/text.h"
#include "coreml/decode/contract.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace masked_contract_details {

constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMost = std::int64_t{1} << 32;
constexpr std::int64_t kMostLayers = 4096;
constexpr const char* kIdentity[] = {"architecture", "model", "tokenizer"};

Json mask_json(const SeenMask& mask) {
  Json one = Json::object();
  one.set("input", mask.input).set("window", mask.window);
  return one;
}

Json rope_json(const RopeInputs& rope) {
  Json one = Json::object();
  one.set("cos", rope.cos)
      .set("sin", rope.sin)
      .set("magnitude", rope.magnitude)
      .set("frequencies", rope.frequencies);
  return one;
}

Json cache_json(const LayerCache& cache) {
  Json one = Json::object();
  one.set("layer", cache.layer).set("keys", cache.keys).set("values", cache.values).set("rope", cache.rope);
  return one;
}

template <class T, class Make>
Json list_json(const std::vector<T>& items, Make make) {
  Json list = Json::array();
  for (const T& item : items) list.push(make(item));
  return list;
}

MaskedContract read_contract(const JsonFields& json) {
  MaskedContract c;
  if (json.count("version", 1, kMost) != kVersion)
    json.refuse(ErrorCode::unsupported, "is a contract of a later version of kvtide");
  c.model = json.required_text("model");
  c.family = json.required_text("family");
  if (const auto identity = json.child("identity"))
    for (const char* key : kIdentity)
      if (const auto text = identity->text(key)) c.identity[key] = *text;
  c.layers = json.count("layers", 1, kMostLayers);
  c.first_layer = static_cast<int>(json.count("first_layer", 0, c.layers));
  c.behind_layer = static_cast<int>(json.count("behind_layer", c.first_layer, c.layers));
  c.embeds = json.flag("embeds");
  c.gives_logits = json.flag("gives_logits");
  c.attention_only = json.flag("attention_only", false);
  c.width = json.count("width", 1, kMost);
  c.vocabulary = json.count("vocabulary", 1, kMost);
  c.slots = json.count("slots", 1, kMost);
  c.context_length = json.count("context_length", 1, kMost);
  c.stream_scale = json.real("stream_scale", 1e-9, 1e9);
  if (json.has("bos")) c.bos = static_cast<TokenId>(json.count("bos", 0, c.vocabulary - 1));
  for (const std::int64_t id : json.numbers<std::vector<std::int64_t>>("eos", 0, c.vocabulary - 1))
    c.eos.push_back(static_cast<TokenId>(id));
  c.tokens = json.required_text("tokens");
  c.write_mask = json.text("write_mask").value_or("");
  c.result = json.required_text("result");
  for (const JsonFields& mask : json.objects("masks")) {
    SeenMask& one = c.masks.emplace_back();
    one.input = mask.required_text("input");
    if (mask.has("window")) one.window = mask.count("window", 1, kMost);
  }
  for (const JsonFields& rope : json.objects("ropes"))
    c.ropes.push_back({rope.required_text("cos"), rope.required_text("sin"), rope.real("magnitude", 0.0, 1e6),
                       rope.numbers<std::vector<double>>("frequencies")});
  for (const JsonFields& cache : json.objects("caches"))
    c.caches.push_back({static_cast<int>(cache.count("layer", c.first_layer, c.behind_layer - 1)),
                        cache.required_text("keys"), cache.required_text("values"),
                        static_cast<int>(cache.count("rope", 0, kMostLayers))});
  c.carried = json.texts("carried");
  return c;
}

// What the contract names has to be there with a shape of its kind; kAny: whatever T is.
class Checked {
 public:
  Checked(const CoremlFunction& function, const std::string& path) : function_(function), path_(path) {}

  void has(std::span<const CoremlFeature> features, const std::string& name,
           const std::vector<std::int64_t>& shape) const {
    const CoremlFeature* feature = feature_named(features, name);
    // An output whose shape follows from the call has none in the description.
    const bool open =
        feature != nullptr && feature->shape.empty() && features.data() == function_.outputs.data();
    bool fits = open || (feature != nullptr && feature->shape.size() == shape.size());
    for (std::size_t i = 0; fits && !open && i < shape.size(); ++i)
      fits = shape[i] == kAny || feature->shape[i] == shape[i];
    if (fits && features.data() == function_.states.data()) fits = feature->type == CoremlType::f16;
    if (!fits)
      throw Error(ErrorCode::bad_format,
                  cat(path_, ": its contract names ", quoted(name),
                      ", which the package does not have in its shape and type; function ", function_.name,
                      " has ", signature_of(function_)));
  }
  static constexpr std::int64_t kAny = -1;

 private:
  const CoremlFunction& function_;
  const std::string& path_;
};

void check_contract(const MaskedContract& c, const CoremlFunction& function, const std::string& path) {
  const Checked checked(function, path);
  constexpr std::int64_t kAny = Checked::kAny;
  std::size_t inputs = 1;
  if (c.embeds)
    checked.has(function.inputs, c.tokens, {1, kAny});
  else
    checked.has(function.inputs, c.tokens, {1, c.width, kAny, 1});
  if (!c.write_mask.empty()) checked.has(function.inputs, c.write_mask, {1, 1, c.slots, kAny}), ++inputs;
  for (const SeenMask& mask : c.masks)
    checked.has(function.inputs, mask.input, {1, 1, kAny, c.slots}), ++inputs;
  for (const RopeInputs& rope : c.ropes)
    for (const std::string& name : {rope.cos, rope.sin})
      checked.has(function.inputs, name, {kAny, static_cast<std::int64_t>(rope.frequencies.size())}),
          ++inputs;
  for (const LayerCache& cache : c.caches)
    for (const std::string& name : {cache.keys, cache.values})
      checked.has(function.states, name, {1, kAny, c.slots, kAny});
  if (c.gives_logits)
    checked.has(function.outputs, c.result, {1, kAny, c.vocabulary});
  else
    checked.has(function.outputs, c.result, {1, c.width, kAny, 1});
  for (const std::string& name : c.carried)
    if (feature_named(function.states, name) == nullptr)
      throw Error(ErrorCode::bad_format, cat(path, ": its contract names the state ", quoted(name),
                                             ", which function ", function.name, " does not have"));
  const std::size_t states = 2 * c.caches.size() + c.carried.size();
  if (inputs != function.inputs.size() || states != function.states.size())
    throw Error(ErrorCode::bad_format,
                cat(path, ": its contract names ", inputs, " inputs and ", states, " states; function ",
                    function.name, " has ", signature_of(function)));
}

}  // namespace masked_contract_details

using namespace masked_contract_details;

std::string contract_text(const MaskedContract& c) {
  Json out = Json::object(), identity = Json::object();
  for (const auto& [key, text] : c.identity) identity.set(key, text);
  out.set("version", kVersion)
      .set("model", c.model)
      .set("family", c.family)
      .set("identity", std::move(identity))
      .set("layers", c.layers)
      .set("first_layer", c.first_layer)
      .set("behind_layer", c.behind_layer)
      .set("embeds", c.embeds)
      .set("gives_logits", c.gives_logits)
      .set("width", c.width)
      .set("vocabulary", c.vocabulary)
      .set("slots", c.slots)
      .set("context_length", c.context_length)
      .set("stream_scale", c.stream_scale)
      .set("bos", c.bos)
      .set("eos", c.eos)
      .set("tokens", c.tokens);
  if (!c.write_mask.empty()) out.set("write_mask", c.write_mask);
  out.set("result", c.result)
      .set("masks", list_json(c.masks, mask_json))
      .set("ropes", list_json(c.ropes, rope_json))
      .set("caches", list_json(c.caches, cache_json));
  if (c.attention_only) out.set("attention_only", true);
  if (!c.carried.empty()) out.set("carried", c.carried);
  return out.text(false);
}

std::optional<MaskedContract> masked_contract_of(const CoremlModel& model, const std::string& path) {
  for (const auto& [key, text] : model.metadata()) {
    if (key != kContractKey) continue;
    const std::string where = cat(path, ": ", kContractKey);
    const JsonValue json = JsonValue::parse(text, where);
    MaskedContract contract = read_contract(JsonFields(json, where));
    check_contract(contract, model.function(), path);
    return contract;
  }
  return std::nullopt;
}

}  // namespace kvtide::coreml
