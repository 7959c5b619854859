// shard_weights.cpp: a folder of shards as the weights of a plain forward pass: what the files hold, number
// by number, with nothing of what runs shards but the reading of the manifest.
#include <algorithm>
#include <iterator>
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

struct NamedRole {
  Role role;
  ShardKind kind;  // mlp: the feed-forward, also where it is a moe shard
  const char* tensor;
};
constexpr NamedRole kNamedRoles[] = {
    {Role::embedding, ShardKind::embedding, "embedding.weight"},
    {Role::positions, ShardKind::embedding, "positions.weight"},
    {Role::input_scale, ShardKind::embedding, "input_scale"},
    {Role::input_bias, ShardKind::embedding, "input_offset"},
    {Role::head, ShardKind::head, "head.weight"},
    {Role::final_norm, ShardKind::head, "norm.weight"},
    {Role::final_norm_bias, ShardKind::head, "norm.bias"},
    {Role::attention_norm, ShardKind::attention, "norm.weight"},
    {Role::attention_norm_bias, ShardKind::attention, "norm.bias"},
    {Role::attention_post_norm, ShardKind::attention, "post_norm.weight"},
    {Role::query, ShardKind::attention, "query.weight"},
    {Role::key, ShardKind::attention, "key.weight"},
    {Role::value, ShardKind::attention, "value.weight"},
    {Role::query_bias, ShardKind::attention, "query.bias"},
    {Role::key_bias, ShardKind::attention, "key.bias"},
    {Role::value_bias, ShardKind::attention, "value.bias"},
    {Role::query_norm, ShardKind::attention, "query_norm.weight"},
    {Role::key_norm, ShardKind::attention, "key_norm.weight"},
    {Role::attention_output, ShardKind::attention, "output.weight"},
    {Role::attention_output_bias, ShardKind::attention, "output.bias"},
    {Role::attention_output_scale, ShardKind::attention, "output_scale"},
    {Role::attention_output_offset, ShardKind::attention, "output_offset"},
    {Role::attention_residual_scale, ShardKind::attention, "residual_scale"},
    {Role::attention_residual_offset, ShardKind::attention, "residual_offset"},
    {Role::feed_forward_norm, ShardKind::mlp, "norm.weight"},
    {Role::feed_forward_norm_bias, ShardKind::mlp, "norm.bias"},
    {Role::feed_forward_post_norm, ShardKind::mlp, "post_norm.weight"},
    {Role::gate, ShardKind::mlp, "gate.weight"},
    {Role::up, ShardKind::mlp, "up.weight"},
    {Role::up_bias, ShardKind::mlp, "up.bias"},
    {Role::down, ShardKind::mlp, "down.weight"},
    {Role::down_bias, ShardKind::mlp, "down.bias"},
    {Role::feed_forward_output_scale, ShardKind::mlp, "output_scale"},
    {Role::feed_forward_output_offset, ShardKind::mlp, "output_offset"},
    {Role::feed_forward_residual_scale, ShardKind::mlp, "residual_scale"},
    {Role::feed_forward_residual_offset, ShardKind::mlp, "residual_offset"},
};
// Of attention, with the names of hybrid_names.h; all other roles belong to the feed-forward.
constexpr Role kConvolved[] = {Role::value_delayed, Role::conv_depthwise,    Role::conv_depthwise_bias,
                               Role::conv_grouped,  Role::conv_grouped_bias, Role::key_temperature};

Place place_of(Role role, const ModelConfig& c) {
  const ShardKind feed_forward = c.experts ? ShardKind::moe : ShardKind::mlp;
  for (const NamedRole& named : kNamedRoles)
    if (named.role == role) return {named.kind == ShardKind::mlp ? feed_forward : named.kind, named.tensor};
  const bool convolved =
      std::find(std::begin(kConvolved), std::end(kConvolved), role) != std::end(kConvolved);
  return {convolved ? ShardKind::attention : feed_forward, hybrid_name(role)};
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
  bool has(Role, int) const override { return true; }  // the heads are there, whatever they were made of

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
  double rope_base(int layer) const override { return rope_of(layer).theta; }

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
