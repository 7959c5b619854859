// manifest_text.cpp: manifest.json, written (docs/shards.md lists its keys).
#include "base/json/json.h"
#include "shards/manifest.h"

namespace kvtide {
namespace {

std::string hex32(std::uint32_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (int shift = 28; shift >= 0; shift -= 4) out += kDigits[value >> shift & 15u];
  return out;
}

void add_file(Json& object, const FileEntry& file) {
  object.set("file", file.file).set("bytes", file.bytes).set("crc32c", hex32(file.crc32c));
}

Json shard(const ShardEntry& entry) {
  Json out = Json::object();
  const ShardInfo& info = entry.info;
  out.set("name", info.name);
  out.set("kind", shard_kind_name(info.kind));
  const bool feeds = info.kind == ShardKind::mlp || info.kind == ShardKind::moe;
  if (info.kind == ShardKind::attention || feeds) out.set("layer", info.layer);
  if (info.kind == ShardKind::attention) {
    out.set("attention", entry.attention);
    out.set("rope", info.rope);
    out.set("window", info.window);
  }
  if (feeds) out.set("experts", entry.experts);
  if (info.kind == ShardKind::head) {
    out.set("vocab_start", info.vocab_first);
    out.set("vocab_end", info.vocab_last);
  }
  add_file(out, entry.file);
  Json tensors = Json::object();
  for (const TensorEntry& tensor : entry.tensors) {
    Json item = Json::object();
    item.set("dtype", tensor.dtype);
    item.set("shape", Json::array(tensor.shape));
    tensors.set(tensor.name, std::move(item));
  }
  out.set("tensors", std::move(tensors));
  return out;
}

}  // namespace

std::string manifest_text(const ShardManifest& m) {
  const ModelConfig& c = m.config;
  Json out = Json::object();
  const auto add = [&](const char* key, Json value) { out.set(key, std::move(value)); };
  add("format", "kvtide-shards");
  add("version", 1);
  add("family", c.architecture);
  add("name", m.name);
  add("d_model", c.width);
  add("d_mlp", c.hidden);
  add("vocabulary", c.vocab);
  add("layers", c.layers.size());
  add("heads", c.heads);
  add("kv_heads", c.kv_heads);
  add("head_dim", c.head_dim);
  add("attention_scale", short_number(c.attention_scale));
  add("embedding_scale", short_number(c.embedding_scale));
  add("norm", c.norm == NormKind::rms ? "rms" : "layer");
  add("norm_epsilon", short_number(c.norm_epsilon));
  add("head_norms", c.head_norms);
  add("post_norms", c.post_norms);
  add("activation", c.activation == Activation::silu ? "silu" : "gelu");
  add("gated", c.gated);
  add("learned_positions", c.learned_positions);
  if (c.convolved) add("convolved", true);
  if (c.scaled_residual) add("scaled_residual", true);
  if (c.experts) {
    add("experts", c.experts->count);
    add("router_width", c.experts->router_width);
    add("skip_slot", c.experts->skip == SkipSlot::zero ? "zero" : "identity");
  }
  add("context_length", c.context_length);
  add("bos", m.bos);
  add("eos", Json::array(m.eos));
  add("slots", m.slots);
  add("t_max", m.t_max);
  add("weights", m.weights);
  add("rope_dims", c.rope_dims);
  Json ropes = Json::array();
  for (const RopeFrequencies& rope : m.ropes) {
    Json item = Json::object();
    item.set("theta", rope.theta);
    item.set("magnitude", rope.magnitude);
    item.set("frequencies", Json::array(rope.frequencies));
    ropes.push(std::move(item));
  }
  add("ropes", std::move(ropes));
  Json files = Json::array();
  for (const FileEntry& file : m.tokenizer_files) {
    Json item = Json::object();
    add_file(item, file);
    files.push(std::move(item));
  }
  Json tokenizer = Json::object();
  tokenizer.set("kind", m.tokenizer);
  tokenizer.set("files", std::move(files));
  add("tokenizer", std::move(tokenizer));
  Json shards = Json::array();
  for (const ShardEntry& entry : m.shards) shards.push(shard(entry));
  add("shards", std::move(shards));
  return out.text(JsonForm::file);
}

}  // namespace kvtide
