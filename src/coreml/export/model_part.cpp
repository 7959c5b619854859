#include "coreml/export/model_part.h"

#include <map>
#include <optional>

#include "base/text.h"
#include "coreml/export/convolved_heads.h"
#include "coreml/write/operations.h"
#include "model/rope_table.h"

namespace kvtide::coreml {
namespace model_part_details {

using Name = std::string;

struct Rotation {
  Name cos, sin;
};

class PartBuilder {
 public:
  PartBuilder(const ExportedModel& model, const ModelPart& part)
      : model_(model), config_(model.config), part_(part), contract_(model.contract), f_("main"), op_(f_) {
    contract_.first_layer = part.first_layer;
    contract_.behind_layer = part.behind_layer;
    contract_.embeds = part.embeds;
    contract_.gives_logits = part.gives_logits;
    contract_.attention_only = part.attention_only;
  }

  Package package() {
    take_inputs();
    Name x = part_.embeds ? embedded() : rows_of(contract_.tokens);
    for (int layer = part_.first_layer; layer < part_.behind_layer; ++layer) {
      x = attention(layer, x);
      if (!part_.attention_only) x = feed_forward(layer, x);
    }
    if (part_.gives_logits) {
      const Weights& w = model_.weights;
      x = norm(x, "output_norm", w.output_norm(), w.output_norm_bias());
      const bool tied =
          part_.embeds && w.head().panels == w.embedding().panels && w.head().blocks == w.embedding().blocks;
      contract_.result = "logits";
      f_.output(op_.linear(x, tied ? embedding_ : model_.constants.matrix(f_, "head", w.head())),
                contract_.result);
    } else {
      contract_.result = "hidden";
      f_.output(op_.reshape(op_.transpose(x, {0, 2, 1}), {1, static_cast<int>(config_.width), -1, 1}),
                contract_.result);
    }
    Package package = make_package(std::move(f_));
    package.description.metadata.emplace_back(kContractKey, contract_text(contract_));
    return package;
  }

 private:
  // ---- inputs

  Name input(const std::string& name, DataType type, Shape shape, std::size_t axis) {
    Feature feature;
    feature.name = name;
    feature.dtype = type;
    shape[axis] = model_.tokens.listed.empty() ? model_.tokens.least : model_.tokens.listed.front();
    feature.shape = shape;
    for (const std::int64_t size : model_.tokens.listed) {
      feature.shapes.push_back(shape);
      feature.shapes.back()[axis] = size;
    }
    if (feature.shapes.size() == 1) feature.shapes.clear();
    if (model_.tokens.listed.empty() && model_.tokens.least != model_.tokens.most) {
      for (const std::int64_t extent : shape) feature.ranges.push_back({extent, extent});
      feature.ranges[axis] = {model_.tokens.least, model_.tokens.most};
    }
    return f_.input(std::move(feature));
  }

  bool has_layers() const { return part_.first_layer < part_.behind_layer; }
  const LayerConfig& how(int layer) const { return config_.layers[static_cast<std::size_t>(layer)]; }

  void take_inputs() {
    contract_.tokens = part_.embeds ? "input_ids" : has_layers() ? "x" : "hidden_states";
    if (part_.embeds)
      input(contract_.tokens, DataType::int32, {1, 1}, 1);
    else
      input(contract_.tokens, DataType::fp16, {1, config_.width, 1, 1}, 2);
    if (has_layers() || (part_.embeds && config_.learned_positions)) {
      contract_.write_mask = "write_mask";
      input(contract_.write_mask, DataType::fp16, {1, 1, contract_.slots, 1}, 3);
    }
    for (int layer = part_.first_layer; layer < part_.behind_layer; ++layer) {
      take_mask(how(layer).window);
      if (config_.rope_dims > 0) take_rope(how(layer).rope);
    }
  }

  // The only mask of a package is attention_mask, whatever it shows; beside one that shows all, a window has a name of its own.
  void take_mask(std::optional<std::int64_t> window) {
    if (masks_.contains(window)) return;
    const std::string name = masks_.empty() ? "attention_mask" : cat("attention_mask_", masks_.size());
    masks_[window] = input(name, DataType::fp16, {1, 1, 1, contract_.slots}, 2);
    contract_.masks.push_back({name, window});
  }

  void take_rope(int rope) {
    if (ropes_.contains(rope)) return;
    const std::string behind = ropes_.empty() ? "" : cat("_", ropes_.size());
    const RopeTable table(config_.ropes[static_cast<std::size_t>(rope)], config_.rope_dims);
    RopeInputs& one = contract_.ropes.emplace_back();
    one = {"rope_cos" + behind, "rope_sin" + behind, table.magnitude(), table.frequencies()};
    ropes_[rope] = {input(one.cos, DataType::fp16, {1, table.pairs()}, 0),
                    input(one.sin, DataType::fp16, {1, table.pairs()}, 0)};
  }

  // ---- small parts

  // [1, T, width] of [1, width, T, 1].
  Name rows_of(const Name& x) {
    return op_.transpose(op_.reshape(x, {1, static_cast<int>(config_.width), -1}), {0, 2, 1});
  }

  // Of the residual stream.
  Name norm(const Name& x, const std::string& name, const std::vector<float>& gamma,
            const std::vector<float>& beta) {
    const Name weight = WeightConstants::vector(f_, name, gamma);
    const double stream = contract_.stream_scale;
    if (config_.norm == NormKind::rms)
      return op_.rms_norm(x, weight, static_cast<float>(config_.norm_epsilon * stream * stream));
    return op_.layer_norm(x, weight, WeightConstants::vector(f_, name + "_bias", beta), config_.norm_epsilon);
  }

  Name project(const Name& x, const std::string& name, const WeightMatrix& matrix,
               const std::vector<float>& bias) {
    const Name weight = model_.constants.matrix(f_, name, matrix);
    return op_.linear(x, weight, bias.empty() ? "" : WeightConstants::vector(f_, name + "_bias", bias));
  }

  Name embedded() {
    embedding_ = model_.constants.matrix(f_, "embedding", model_.weights.embedding());
    Name x = op_.gather(embedding_, contract_.tokens);
    const double scale = config_.embedding_scale * contract_.stream_scale;
    if (scale != 1.0) x = op_.mul(x, half(static_cast<float>(scale)));
    if (!config_.learned_positions) return x;
    // A column of the write mask chooses its row: the product has one term.
    const Name positions =
        model_.constants.plain(f_, "positions", model_.weights.positions(), contract_.slots);
    const Name chosen = op_.matmul(contract_.write_mask, positions, true, false);
    return op_.add(x, op_.reshape(chosen, {1, -1, static_cast<int>(config_.width)}));
  }

  // ---- a layer

  std::string named(int layer, const std::string& what) const { return cat("layer_", layer, "_", what); }

  // [1, heads, T, head_dim]
  Name heads_of(const Name& x, int heads, const std::string& name, const std::vector<float>& gamma) {
    Name split = op_.reshape(x, {1, -1, heads, config_.head_dim});
    if (!gamma.empty())
      split = op_.rms_norm(split, WeightConstants::vector(f_, name, gamma), config_.norm_epsilon);
    return op_.transpose(split, {0, 2, 1, 3});
  }

  Name rotated(const Name& x, int layer) {
    const auto found = ropes_.find(how(layer).rope);
    if (found == ropes_.end()) return x;
    const auto& [cos, sin] = found->second;
    const int half = config_.rope_dims / 2;
    const Name a = op_.part(x, 3, 0, half), b = op_.part(x, 3, half, 2 * half);
    std::vector<Name> parts = {op_.sub(op_.mul(a, cos), op_.mul(b, sin)),
                               op_.add(op_.mul(b, cos), op_.mul(a, sin))};
    if (2 * half < config_.head_dim) parts.push_back(op_.part(x, 3, 2 * half, config_.head_dim));
    return op_.concat(parts, -1);
  }

  // What the state holds when the new rows are in it.
  Name written(const std::string& state, const Name& rows) {
    if (kept_.empty()) {
      const Name taken =
          f_.op("reduce_sum", {{"x", contract_.write_mask}, {"axes", {-1}}, {"keep_dims", true}},
                tensor(DataType::fp16, {1, 1, contract_.slots, 1}));
      kept_ = op_.add(op_.mul(taken, half(-1.0f)), half(1.0f));
    }
    f_.write_state(state,
                   op_.add(op_.mul(f_.read_state(state), kept_), op_.matmul(contract_.write_mask, rows)));
    return f_.read_state(state);
  }

  // Behind the names of its states.
  std::string numbered(int layer) const {
    return part_.behind_layer - part_.first_layer == 1 ? "" : cat("_", layer);
  }

  LayerCache cache_of(int layer) {
    const std::string behind = numbered(layer);
    const Shape shape = {1, config_.kv_heads, contract_.slots, config_.head_dim};
    LayerCache cache{layer, f_.state("k_cache" + behind, DataType::fp16, shape),
                     f_.state("v_cache" + behind, DataType::fp16, shape), how(layer).rope};
    contract_.caches.push_back(cache);
    return cache;
  }

  Name attended(int layer, const Name& query, const Name& keys, const Name& values) {
    const int heads = config_.heads, shared = config_.kv_heads;
    const bool grouped = heads != shared;
    const Name asked = grouped ? op_.reshape(query, {1, shared, -1, config_.head_dim}) : query;
    Name scores = op_.matmul(asked, keys, false, true);
    if (grouped)
      scores = op_.reshape(scores, {shared, heads / shared, -1, static_cast<int>(contract_.slots)});
    Name weights = op_.softmax(op_.add(scores, masks_.at(how(layer).window)));
    if (grouped) weights = op_.reshape(weights, {1, shared, -1, static_cast<int>(contract_.slots)});
    const Name mixed = op_.matmul(weights, values);
    const Name apart = grouped ? op_.reshape(mixed, {1, heads, -1, config_.head_dim}) : mixed;
    return op_.reshape(op_.transpose(apart, {0, 2, 1, 3}), {1, -1, heads * config_.head_dim});
  }

  Name attention(int layer, const Name& x) {
    const LayerWeights& w = model_.weights.layer(layer);
    const LayerCache cache = cache_of(layer);
    const Name normed = norm(x, named(layer, "attention_norm"), w.attention_norm, w.attention_norm_bias);
    const Heads heads = w.cca ? convolved(layer, normed) : projected(layer, normed);
    const Name query = op_.mul(rotated(heads.query, layer), half(config_.attention_scale));
    const Name keys = written(cache.keys, rotated(heads.key, layer)),
               values = written(cache.values, heads.value);
    const Name y =
        project(attended(layer, query, keys, values), named(layer, "output"), w.output, w.output_bias);
    if (!w.attention_scale.empty()) return merged(x, y, named(layer, "attention"), w.attention_scale);
    return joined(x, y, named(layer, "attention_post_norm"), w.attention_post_norm);
  }

  struct Heads {
    Name query, key, value;  // [1, heads or kv_heads, T, head_dim]
  };

  Heads projected(int layer, const Name& normed) {
    const LayerWeights& w = model_.weights.layer(layer);
    return {
        heads_of(project(normed, named(layer, "query"), w.query, w.query_bias), config_.heads,
                 named(layer, "query_norm"), w.query_norm),
        heads_of(project(normed, named(layer, "key"), w.key, w.key_bias), config_.kv_heads,
                 named(layer, "key_norm"), w.key_norm),
        heads_of(project(normed, named(layer, "value"), w.value, w.value_bias), config_.kv_heads, "", {})};
  }

  Heads convolved(int layer, const Name& normed) {
    const ConvolvedHeads heads = convolved_heads(f_, config_, model_.weights.layer(layer), model_.constants,
                                                 normed, cat("layer_", layer), numbered(layer));
    contract_.carried.insert(contract_.carried.end(), {heads.conv_state, heads.prev_value});
    return {heads.query, heads.key, heads.value};
  }

  // Of a scaled residual stream (model/residual.h).
  Name merged(const Name& x, const Name& y, const std::string& name, const ResidualScale& s) {
    const auto scaled = [&](const Name& of, const char* what, const std::vector<float>& offset,
                            const std::vector<float>& scale) {
      const Name moved = op_.add(of, WeightConstants::vector(f_, cat(name, "_", what, "_offset"), offset));
      return op_.mul(moved, WeightConstants::vector(f_, cat(name, "_", what, "_scale"), scale));
    };
    return op_.add(scaled(y, "output", s.output_offset, s.output_scale),
                   scaled(x, "residual", s.residual_offset, s.residual_scale));
  }

  Name joined(const Name& x, const Name& y, const std::string& name, const std::vector<float>& post_norm) {
    if (post_norm.empty()) return op_.add(x, y);
    const Name weight =
        WeightConstants::vector(f_, name, post_norm, static_cast<float>(contract_.stream_scale));
    return op_.add(x, op_.rms_norm(y, weight, config_.norm_epsilon));
  }

  Name activated(const Name& x) {
    return config_.activation == Activation::silu ? op_.unary("silu", x) : op_.gelu(x);
  }

  Name feed_forward(int layer, const Name& x) {
    const LayerWeights& w = model_.weights.layer(layer);
    const Name normed =
        norm(x, named(layer, "feed_forward_norm"), w.feed_forward_norm, w.feed_forward_norm_bias);
    Name inner = project(normed, named(layer, "up"), w.up, w.up_bias);
    inner = config_.gated ? op_.mul(activated(project(normed, named(layer, "gate"), w.gate, {})), inner)
                          : activated(inner);
    return joined(x, project(inner, named(layer, "down"), w.down, w.down_bias),
                  named(layer, "feed_forward_post_norm"), w.feed_forward_post_norm);
  }

  const ExportedModel& model_;
  const ModelConfig& config_;
  const ModelPart& part_;
  MaskedContract contract_;
  FunctionBuilder f_;
  Operations op_;
  std::map<std::optional<std::int64_t>, Name> masks_;  // by window
  std::map<int, Rotation> ropes_;
  Name embedding_, kept_;
};

}  // namespace model_part_details

// A power of two: numbers stay the same but for their exponent.
double stream_scale_of(const ModelConfig& config) { return config.post_norms ? 1.0 / 32.0 : 1.0; }

Package part_package(const ExportedModel& model, const ModelPart& part) {
  return model_part_details::PartBuilder(model, part).package();
}

}  // namespace kvtide::coreml
