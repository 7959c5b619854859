// manifest_read.cpp: manifest.json into plain data: types and ranges of single values. What they mean
// together is checked in manifest_check.cpp.
#include <algorithm>
#include <string_view>

#include "base/json/json_fields.h"
#include "base/text.h"
#include "formats/text_file.h"
#include "kernels/attend_kernel.h"
#include "kvtide/error.h"
#include "shards/manifest.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMostWide = std::int64_t{1} << 20, kMostVocabulary = std::int64_t{1} << 24;

FileEntry read_file_entry(const JsonFields& json, const std::string& inside) {
  FileEntry out;
  out.file = json.required_text("file");
  out.bytes = static_cast<std::uint64_t>(json.count("bytes", 1, std::int64_t{1} << 50));
  const std::string sum = json.required_text("crc32c");
  const bool hex = sum.size() == 8 && std::all_of(sum.begin(), sum.end(), [](char c) {
                     return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
                   });
  if (!hex)
    json.refuse(ErrorCode::bad_format,
                cat("'", inside, "crc32c' is ", quoted(sum), "; it must be 8 hexadecimal digits"));
  for (const char c : sum)
    out.crc32c = out.crc32c << 4 | static_cast<std::uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
  return out;
}

std::vector<TensorEntry> read_tensors(const JsonFields& json, const std::string& shard) {
  const JsonValue* tensors = json.find("tensors");
  if (tensors == nullptr || tensors->object() == nullptr)
    json.refuse(ErrorCode::bad_format, cat("shard ", quoted(shard), ": 'tensors' must be an object"));
  std::vector<TensorEntry> out;
  for (const auto& [name, value] : *tensors->object()) {
    const std::string inside = cat("shard ", shard, ": tensors.", name, ".");
    const JsonFields item(value, json.file(), inside);
    TensorEntry entry;
    entry.name = name;
    entry.dtype = item.required_text("dtype");
    for (const JsonValue& extent : item.list("shape")) {
      if (extent.integer() == nullptr || *extent.integer() < 0)
        json.refuse(ErrorCode::bad_format, cat("'", inside, "shape' must be a list of whole numbers"));
      entry.shape.push_back(*extent.integer());
    }
    out.push_back(std::move(entry));
  }
  return out;
}

ShardKind read_kind(const JsonFields& json, const std::string& name) {
  const std::string kind = json.required_text("kind");
  for (const ShardKind known :
       {ShardKind::embedding, ShardKind::attention, ShardKind::mlp, ShardKind::moe, ShardKind::head})
    if (kind == shard_kind_name(known)) return known;
  json.refuse(ErrorCode::unsupported,
              cat("shard ", quoted(name), " is of the kind ", quoted(kind),
                  "; the kinds that run are embedding, attention, mlp, moe and head"));
}

ShardEntry read_shard(const JsonValue& value, const std::string& file, const ModelConfig& config) {
  JsonFields json(value, file, "shards[].");
  ShardEntry out;
  ShardInfo& info = out.info;
  info.name = json.required_text("name");
  json = JsonFields(value, file, cat("shard ", info.name, ": "));
  info.kind = read_kind(json, info.name);
  const auto last_layer = static_cast<std::int64_t>(config.layers.size()) - 1;
  if (info.kind == ShardKind::attention || info.kind == ShardKind::mlp || info.kind == ShardKind::moe)
    info.layer = static_cast<int>(json.count("layer", 0, last_layer));
  if (info.kind == ShardKind::attention) {
    out.attention = json.text("attention").value_or("gqa");
    if (out.attention != "gqa" && out.attention != "cca")
      json.refuse(ErrorCode::unsupported,
                  cat("shard ", quoted(info.name), " has ", quoted(out.attention),
                      " attention; this version runs gqa (grouped queries over keys and values) and cca "
                      "(the same with convolved queries and keys)"));
    info.rope = static_cast<int>(json.count("rope", 0, 1024, 0));
    if (json.has("window")) info.window = json.count("window", 1, kMostSlots);
  }
  if (info.kind == ShardKind::mlp) {
    out.experts = json.count("experts", 1, 65536, 1);
    if (out.experts != 1)
      json.refuse(ErrorCode::unsupported,
                  cat("shard ", quoted(info.name), " holds ", out.experts,
                      " experts and would need a router; an mlp shard is one feed-forward, a moe shard has "
                      "a router"));
  }
  if (info.kind == ShardKind::moe) {
    const std::int64_t of_model = config.experts ? config.experts->count : 0;
    out.experts = json.count("experts", 1, 65536);
    if (out.experts != of_model)
      json.refuse(ErrorCode::bad_format, cat("shard ", quoted(info.name), " holds ", out.experts,
                                             " experts; the model has ", of_model));
  }
  if (info.kind == ShardKind::head) {
    info.vocab_first = static_cast<TokenId>(json.count("vocab_start", 0, config.vocab));
    info.vocab_last = static_cast<TokenId>(json.count("vocab_end", 0, config.vocab));
  }
  out.file = read_file_entry(json, cat("shard ", info.name, ": "));
  info.file = out.file.file;
  info.bytes = static_cast<std::int64_t>(out.file.bytes);
  out.tensors = read_tensors(json, info.name);
  return out;
}

// What only models with convolved attention and routed experts have.
void read_hybrid_shape(const JsonFields& json, ModelConfig& c) {
  c.convolved = json.flag("convolved", false);
  c.scaled_residual = json.flag("scaled_residual", false);
  if (c.convolved && c.kv_heads * c.head_dim % 2 != 0)
    json.refuse(ErrorCode::bad_format, cat(c.kv_heads, " KV heads of ", c.head_dim,
                                           " cannot be halved into current and delayed values"));
  if (c.scaled_residual && c.post_norms)
    json.refuse(ErrorCode::unsupported, "'scaled_residual' and 'post_norms' exclude each other");
  if (!json.has("experts")) return;
  ExpertsConfig experts;
  experts.count = static_cast<int>(json.count("experts", 1, 1024));
  experts.router_width = json.count("router_width", 1, kMostWide);
  experts.skip =
      json.one_of("skip_slot", {"identity", "zero"}) == "zero" ? SkipSlot::zero : SkipSlot::identity;
  if (!c.gated || c.activation != Activation::silu)
    json.refuse(ErrorCode::unsupported, "'experts' are gated by silu: 'gated' and 'activation' must say so");
  c.experts = experts;
}

ModelConfig read_shape(const JsonFields& json) {
  ModelConfig c;
  c.architecture = json.required_text("family");
  c.width = json.count("d_model", 1, kMostWide);
  c.hidden = json.count("d_mlp", 1, kMostWide);
  c.vocab = json.count("vocabulary", 1, kMostVocabulary);
  c.layers.resize(static_cast<std::size_t>(json.count("layers", 1, 4096)));
  c.heads = static_cast<int>(json.count("heads", 1, 4096));
  c.kv_heads = static_cast<int>(json.count("kv_heads", 1, 4096));
  c.head_dim = static_cast<int>(json.count("head_dim", 1, kMaxHeadDim));
  c.rope_dims = static_cast<int>(json.count("rope_dims", 0, 4096));
  check_heads(json.file(), c);
  c.attention_scale = static_cast<float>(json.real("attention_scale", 1e-6, 1e6));
  c.embedding_scale = static_cast<float>(json.real("embedding_scale", 1e-6, 1e6));
  c.norm = json.one_of("norm", {"rms", "layer"}) == "rms" ? NormKind::rms : NormKind::layer;
  c.norm_epsilon = static_cast<float>(json.real("norm_epsilon", 0.0, 1.0));
  c.activation = json.one_of("activation", {"silu", "gelu"}) == "silu" ? Activation::silu : Activation::gelu;
  c.head_norms = json.flag("head_norms", false);
  c.post_norms = json.flag("post_norms", false);
  c.gated = json.flag("gated", true);
  c.learned_positions = json.flag("learned_positions", false);
  c.context_length = json.count("context_length", 1, std::int64_t{1} << 31);
  read_hybrid_shape(json, c);
  return c;
}

RopeFrequencies read_rope(const JsonValue& value, const std::string& file) {
  const JsonFields json(value, file, "ropes[].");
  RopeFrequencies out;
  out.theta = json.real("theta", 0.0, 1e12);
  out.magnitude = json.real("magnitude", 1e-6, 1e6, 1.0);
  for (const JsonValue& item : json.list("frequencies")) {
    const auto number = item.number();
    if (!number || !(*number >= 0.0 && *number <= 10.0))
      json.refuse(ErrorCode::bad_format, "'ropes[].frequencies' must hold numbers between 0 and 10");
    out.frequencies.push_back(*number);
  }
  return out;
}

}  // namespace

ShardManifest read_manifest(const std::string& folder) {
  const std::string file = cat(folder, "/", kManifestFile);
  if (!file_exists(file))
    throw Error(ErrorCode::not_found,
                cat(file, ": is not there; a folder of shards is made by kvtide shard export"));
  const JsonValue tree = JsonValue::parse(read_whole_text(file), file);
  const JsonFields json(tree, file);
  if (json.text("format") != "kvtide-shards")
    json.refuse(ErrorCode::bad_format, "'format' must be \"kvtide-shards\"");
  if (const auto version = json.count("version", 1, 1 << 20); version != 1)
    json.refuse(ErrorCode::unsupported, cat("'version' is ", version, "; version 1 is read"));

  ShardManifest m;
  m.config = read_shape(json);
  m.name = json.text("name").value_or("");
  m.weights = json.text("weights").value_or("");
  m.slots = json.count("slots", 1, kMostSlots);
  m.t_max = json.count("t_max", 1, kMostColumns);
  if (json.has("bos")) m.bos = static_cast<TokenId>(json.count("bos", 0, m.config.vocab - 1));
  for (const JsonValue& item : json.list("eos")) {
    if (item.integer() == nullptr || *item.integer() < 0 || *item.integer() >= m.config.vocab)
      json.refuse(ErrorCode::bad_format, "'eos' must be a list of token ids within the vocabulary");
    m.eos.push_back(static_cast<TokenId>(*item.integer()));
  }
  for (const JsonValue& item : json.list("ropes")) m.ropes.push_back(read_rope(item, file));
  const auto tokenizer = json.child("tokenizer");
  if (!tokenizer) json.refuse(ErrorCode::bad_format, "the key 'tokenizer' is missing");
  m.tokenizer = tokenizer->one_of("kind", {"folder", "gguf"});
  for (const JsonValue& item : tokenizer->list("files"))
    m.tokenizer_files.push_back(
        read_file_entry(JsonFields(item, file, "tokenizer.files[]."), "tokenizer.files[]."));
  for (const JsonValue& item : json.list("shards")) m.shards.push_back(read_shard(item, file, m.config));
  check_manifest(m, file);
  for (const ShardEntry& shard : m.shards)
    if (shard.info.kind == ShardKind::attention) {
      LayerConfig& layer = m.config.layers[static_cast<std::size_t>(shard.info.layer)];
      layer.window = shard.info.window;
      layer.rope = shard.info.rope;
    }
  return m;
}

}  // namespace kvtide
