// manifest_text.cpp: manifest.json, written (docs/shards.md lists its keys).
#include "base/json/json_text.h"
#include "shards/manifest.h"

namespace kvtide {
namespace {

using Object = JsonValue::Object;
using List = JsonValue::List;

JsonValue text(std::string value) { return JsonValue(std::move(value)); }
JsonValue number(std::int64_t value) { return JsonValue(value); }

template <class Range>
JsonValue numbers(const Range& range) {
  List list;
  for (const auto value : range) {
    if constexpr (std::is_floating_point_v<std::decay_t<decltype(value)>>)
      list.emplace_back(static_cast<double>(value));
    else
      list.push_back(number(value));
  }
  return JsonValue(std::move(list));
}

std::string hex32(std::uint32_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (int shift = 28; shift >= 0; shift -= 4) out += kDigits[value >> shift & 15u];
  return out;
}

void add_file(Object& object, const FileEntry& file) {
  object.emplace_back("file", text(file.file));
  object.emplace_back("bytes", number(static_cast<std::int64_t>(file.bytes)));
  object.emplace_back("crc32c", text(hex32(file.crc32c)));
}

JsonValue shard(const ShardEntry& entry) {
  Object out;
  const ShardInfo& info = entry.info;
  out.emplace_back("name", text(info.name));
  out.emplace_back("kind", text(shard_kind_name(info.kind)));
  const bool feeds = info.kind == ShardKind::mlp || info.kind == ShardKind::moe;
  if (info.kind == ShardKind::attention || feeds) out.emplace_back("layer", number(info.layer));
  if (info.kind == ShardKind::attention) {
    out.emplace_back("attention", text(entry.attention));
    out.emplace_back("rope", number(info.rope));
    out.emplace_back("window", info.window ? number(*info.window) : JsonValue());
  }
  if (feeds) out.emplace_back("experts", number(entry.experts));
  if (info.kind == ShardKind::head) {
    out.emplace_back("vocab_start", number(info.vocab_first));
    out.emplace_back("vocab_end", number(info.vocab_last));
  }
  add_file(out, entry.file);
  Object tensors;
  for (const TensorEntry& tensor : entry.tensors) {
    Object item;
    item.emplace_back("dtype", text(tensor.dtype));
    item.emplace_back("shape", numbers(tensor.shape));
    tensors.emplace_back(tensor.name, JsonValue(std::move(item)));
  }
  out.emplace_back("tensors", JsonValue(std::move(tensors)));
  return JsonValue(std::move(out));
}

}  // namespace

std::string manifest_text(const ShardManifest& m) {
  const ModelConfig& c = m.config;
  Object out;
  const auto add = [&](const char* key, JsonValue value) { out.emplace_back(key, std::move(value)); };
  add("format", text("kvtide-shards"));
  add("version", number(1));
  add("family", text(c.architecture));
  add("name", text(m.name));
  add("d_model", number(c.width));
  add("d_mlp", number(c.hidden));
  add("vocabulary", number(c.vocab));
  add("layers", number(static_cast<std::int64_t>(c.layers.size())));
  add("heads", number(c.heads));
  add("kv_heads", number(c.kv_heads));
  add("head_dim", number(c.head_dim));
  add("attention_scale", JsonValue(short_number(c.attention_scale)));
  add("embedding_scale", JsonValue(short_number(c.embedding_scale)));
  add("norm", text(c.norm == NormKind::rms ? "rms" : "layer"));
  add("norm_epsilon", JsonValue(short_number(c.norm_epsilon)));
  add("head_norms", JsonValue(c.head_norms));
  add("post_norms", JsonValue(c.post_norms));
  add("activation", text(c.activation == Activation::silu ? "silu" : "gelu"));
  add("gated", JsonValue(c.gated));
  add("learned_positions", JsonValue(c.learned_positions));
  if (c.convolved) add("convolved", JsonValue(true));
  if (c.scaled_residual) add("scaled_residual", JsonValue(true));
  if (c.experts) {
    add("experts", number(c.experts->count));
    add("router_width", number(c.experts->router_width));
    add("skip_slot", text(c.experts->skip == SkipSlot::zero ? "zero" : "identity"));
  }
  add("context_length", number(c.context_length));
  add("bos", m.bos ? number(*m.bos) : JsonValue());
  add("eos", numbers(m.eos));
  add("slots", number(m.slots));
  add("t_max", number(m.t_max));
  add("weights", text(m.weights));
  add("rope_dims", number(c.rope_dims));
  List ropes;
  for (const RopeFrequencies& rope : m.ropes) {
    Object item;
    item.emplace_back("theta", JsonValue(rope.theta));
    item.emplace_back("magnitude", JsonValue(rope.magnitude));
    item.emplace_back("frequencies", numbers(rope.frequencies));
    ropes.emplace_back(std::move(item));
  }
  add("ropes", JsonValue(std::move(ropes)));
  List files;
  for (const FileEntry& file : m.tokenizer_files) {
    Object item;
    add_file(item, file);
    files.emplace_back(std::move(item));
  }
  Object tokenizer;
  tokenizer.emplace_back("kind", text(m.tokenizer));
  tokenizer.emplace_back("files", JsonValue(std::move(files)));
  add("tokenizer", JsonValue(std::move(tokenizer)));
  List shards;
  for (const ShardEntry& entry : m.shards) shards.push_back(shard(entry));
  add("shards", JsonValue(std::move(shards)));
  return json_text(JsonValue(std::move(out)));
}

}  // namespace kvtide
