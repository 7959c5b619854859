// shard_weights.cpp: a folder of shards as the weights of a plain forward pass: what the files hold, number
// by number, with nothing of what runs shards but the reading of the manifest.
#include <algorithm>
#include <map>

#include "base/mapped_file.h"
#include "base/text.h"
#include "formats/safetensors.h"
#include "kernels/codec.h"
#include "kvtide/error.h"
#include "shards/hybrid_names.h"
#include "shards/manifest.h"
#include "shards/shard_file.h"
#include "validate/plain_weights.h"

namespace kvtide {
namespace {

// Where a role is: the kind of shard, and the tensor's name there.
struct Place {
  ShardKind kind;
  std::string tensor;
};

Place place_of(Role role, const ModelConfig& c) {
  const ShardKind feed = c.experts ? ShardKind::moe : ShardKind::mlp;
  constexpr ShardKind kAttention = ShardKind::attention;
  switch (role) {
    case Role::embedding:
      return {ShardKind::embedding, "embedding.weight"};
    case Role::positions:
      return {ShardKind::embedding, "positions.weight"};
    case Role::input_scale:
      return {ShardKind::embedding, "input_scale"};
    case Role::input_bias:
      return {ShardKind::embedding, "input_offset"};
    case Role::head:
      return {ShardKind::head, "head.weight"};
    case Role::final_norm:
      return {ShardKind::head, "norm.weight"};
    case Role::final_norm_bias:
      return {ShardKind::head, "norm.bias"};
    case Role::attention_norm:
      return {kAttention, "norm.weight"};
    case Role::attention_norm_bias:
      return {kAttention, "norm.bias"};
    case Role::attention_post_norm:
      return {kAttention, "post_norm.weight"};
    case Role::query:
      return {kAttention, "query.weight"};
    case Role::key:
      return {kAttention, "key.weight"};
    case Role::value:
      return {kAttention, "value.weight"};
    case Role::query_bias:
      return {kAttention, "query.bias"};
    case Role::key_bias:
      return {kAttention, "key.bias"};
    case Role::value_bias:
      return {kAttention, "value.bias"};
    case Role::query_norm:
      return {kAttention, "query_norm.weight"};
    case Role::key_norm:
      return {kAttention, "key_norm.weight"};
    case Role::attention_output:
      return {kAttention, "output.weight"};
    case Role::attention_output_bias:
      return {kAttention, "output.bias"};
    case Role::attention_output_scale:
      return {kAttention, "output_scale"};
    case Role::attention_output_offset:
      return {kAttention, "output_offset"};
    case Role::attention_residual_scale:
      return {kAttention, "residual_scale"};
    case Role::attention_residual_offset:
      return {kAttention, "residual_offset"};
    case Role::feed_forward_norm:
      return {feed, "norm.weight"};
    case Role::feed_forward_norm_bias:
      return {feed, "norm.bias"};
    case Role::feed_forward_post_norm:
      return {feed, "post_norm.weight"};
    case Role::gate:
      return {feed, "gate.weight"};
    case Role::up:
      return {feed, "up.weight"};
    case Role::up_bias:
      return {feed, "up.bias"};
    case Role::down:
      return {feed, "down.weight"};
    case Role::down_bias:
      return {feed, "down.bias"};
    case Role::feed_forward_output_scale:
      return {feed, "output_scale"};
    case Role::feed_forward_output_offset:
      return {feed, "output_offset"};
    case Role::feed_forward_residual_scale:
      return {feed, "residual_scale"};
    case Role::feed_forward_residual_offset:
      return {feed, "residual_offset"};
    case Role::value_delayed:
    case Role::conv_depthwise:
    case Role::conv_depthwise_bias:
    case Role::conv_grouped:
    case Role::conv_grouped_bias:
    case Role::key_temperature:
      return {kAttention, hybrid_name(role)};
    default:
      return {feed, hybrid_name(role)};
  }
}

class ShardWeights final : public PlainWeights {
 public:
  explicit ShardWeights(const std::string& folder) : folder_(folder), manifest_(read_manifest(folder)) {
    for (const ShardEntry& shard : manifest_.shards) {
      check_file(folder, shard.file, Checksum::compare);
      const std::string path = cat(folder, "/", shard.file.file);
      MappedFile& file = files_.emplace_back(path);
      tensors_.emplace(shard.info.name, SafeTensors::parse(file.bytes(), path));
    }
  }

  const ModelConfig& config() const override { return manifest_.config; }
  bool has(Role) const override { return true; }  // the heads are there, whatever they were made of

  PlainMatrix matrix(Role role, int layer, std::int64_t rows, std::int64_t columns,
                     const ExpertRows& expert) const override {
    if (role == Role::head) return head(rows, columns);
    if (role == Role::expert_gate_up || role == Role::expert_down) {
      const char* part = role == Role::expert_down ? "down" : expert.first == 0 ? "gate" : "up";
      return matrix_of(shard_of(ShardKind::moe, layer), expert_name(expert.expert, part), rows, columns);
    }
    const Place place = place_of(role, config());
    return matrix_of(shard_of(place.kind, layer), place.tensor, rows, columns);
  }

  std::vector<float> vector(Role role, int layer, std::int64_t n) const override {
    const Place place = place_of(role, config());
    const SafeTensor* tensor = find(shard_of(place.kind, layer), place.tensor);
    if (tensor == nullptr) return {};
    std::vector<float> values(static_cast<std::size_t>(n));
    decode_row(tensor->dtype == "F16" ? DType::f16 : DType::f32, tensor->bytes.data(), n, values.data());
    return values;
  }

  std::vector<double> frequencies(int layer) const override {
    return config().rope_dims > 0 ? rope_of(layer).frequencies : std::vector<double>();
  }
  double magnitude(int layer) const override {
    return config().rope_dims > 0 ? rope_of(layer).magnitude : 1.0;
  }

 private:
  const RopeFrequencies& rope_of(int layer) const {
    return manifest_.ropes[static_cast<std::size_t>(config().layers[static_cast<std::size_t>(layer)].rope)];
  }

  // Of heads the first; their norms are alike.
  const ShardEntry& shard_of(ShardKind kind, int layer) const {
    const bool layered = kind != ShardKind::embedding && kind != ShardKind::head;
    return *std::find_if(manifest_.shards.begin(), manifest_.shards.end(), [&](const ShardEntry& shard) {
      return shard.info.kind == kind && (!layered || shard.info.layer == layer);
    });
  }

  const SafeTensor* find(const ShardEntry& shard, const std::string& name) const {
    const auto& tensors = tensors_.at(shard.info.name).tensors;
    const auto found = tensors.find(name);
    return found != tensors.end() ? &found->second : nullptr;
  }

  PlainMatrix matrix_of(const ShardEntry& shard, const std::string& name, std::int64_t rows,
                        std::int64_t columns) const {
    const SafeTensor* tensor = find(shard, name);
    if (tensor == nullptr || tensor->shape != std::vector<std::int64_t>{rows, columns})
      throw Error(ErrorCode::bad_format, cat(folder_, "/", shard.file.file, ": tensor ", quoted(name),
                                             " is missing, or has another shape than the manifest says"));
    if (tensor->dtype != "I8") {
      const DType type = tensor->dtype == "F16" ? DType::f16 : DType::f32;
      return {rows, columns, [tensor, type, columns](std::int64_t index, float* out) {
                decode_row(type, tensor->bytes.data() + index * dtype_bytes(type, columns), columns, out);
              }};
    }
    const SafeTensor* stored = find(shard, name + "_scale");
    const auto count = static_cast<std::int64_t>(stored->bytes.size() / sizeof(float));
    std::vector<float> scales(static_cast<std::size_t>(count));
    decode_row(DType::f32, stored->bytes.data(), count, scales.data());
    return {rows, columns, [tensor, scales, columns](std::int64_t index, float* out) {
              const float scale = scales[scales.size() == 1 ? 0 : static_cast<std::size_t>(index)];
              for (std::int64_t k = 0; k < columns; ++k)
                out[k] = scale * static_cast<float>(static_cast<std::int8_t>(
                                     tensor->bytes[static_cast<std::size_t>(index * columns + k)]));
            }};
  }

  // Rows of the vocabulary, each from the head that has it.
  PlainMatrix head(std::int64_t rows, std::int64_t columns) const {
    std::map<std::int64_t, PlainMatrix> parts;  // by the first token behind
    for (const ShardEntry& shard : manifest_.shards)
      if (shard.info.kind == ShardKind::head)
        parts.emplace(
            shard.info.vocab_last,
            matrix_of(shard, "head.weight", shard.info.vocab_last - shard.info.vocab_first, columns));
    return {rows, columns, [parts](std::int64_t index, float* out) {
              const auto part = parts.upper_bound(index);
              part->second.row(index - (part->first - part->second.rows), out);
            }};
  }

  std::string folder_;
  ShardManifest manifest_;
  std::vector<MappedFile> files_;
  std::map<std::string, SafeTensors> tensors_;  // by shard
};

}  // namespace

std::unique_ptr<PlainWeights> plain_shard_weights(const std::string& folder) {
  return std::make_unique<ShardWeights>(folder);
}

}  // namespace kvtide
