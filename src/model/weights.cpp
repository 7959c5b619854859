#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "base/text.h"
#include "kernels/codec.h"
#include "kvtide/error.h"
#include "model/pack_matrix.h"
#include "model/stored_rows.h"

namespace kvtide {
namespace {

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) text += cat(text.size() > 1 ? ", " : "", extent);
  return text + "]";
}

}  // namespace

class WeightLoader final : private WeightSource {
 public:
  // place: of what has to be packed.
  WeightLoader(const Checkpoint& checkpoint, ThreadPool& pool, Weights& weights, PanelPlace& place)
      : checkpoint_(checkpoint),
        config_(checkpoint.config()),
        weights_(weights),
        packer_(checkpoint, pool, place) {}

  void load() {
    const std::int64_t width = config_.width;
    weights_.embedding_ = matrix(Role::embedding, config_.vocab, width);
    if (config_.learned_positions)
      weights_.positions_ = matrix(Role::positions, config_.context_length, width);
    const bool tied = config_.tied_head.value_or(!checkpoint_.find(Role::head));
    weights_.head_ = tied ? weights_.embedding_ : matrix(Role::head, config_.vocab, width);
    weights_.output_norm_ = vector(Role::final_norm, width);
    if (config_.norm == NormKind::layer) weights_.output_norm_bias_ = vector(Role::final_norm_bias, width);
    if (config_.scaled_residual) {
      weights_.input_scale_ = vector(Role::input_scale, width);
      weights_.input_bias_ = vector(Role::input_bias, width);
    }
    if (config_.layer_inputs > 0) weights_.layer_inputs_ = load_layer_inputs(config_, *this);
    for (std::size_t i = 0; i < config_.layers.size(); ++i) {
      layer_ = static_cast<int>(i);
      weights_.layers_.push_back(layer());
    }
    if (weights_.packed_ && next_packed_ != weights_.packed_->matrices().size())
      throw Error(ErrorCode::bad_format, cat("the packed matrices are others than the model's: it has ",
                                             next_packed_, ", not ", weights_.packed_->matrices().size()));
  }

 private:
  const LayerConfig& layer_config() const { return config_.layers[static_cast<std::size_t>(layer_)]; }

  LayerWeights layer() {
    LayerWeights w;
    load_norms(w);
    switch (layer_config().mixer) {
      case Mixer::attention:
        load_attention(w);
        break;
      case Mixer::short_convolution:
        w.conv = load_short_conv(config_, *this);
        break;
      case Mixer::delta_net:
        w.delta = load_delta_net(config_, *this);
        break;
      case Mixer::state_space:
        w.space = load_state_space(config_, *this);
        break;
      case Mixer::none:
        break;
    }
    if (config_.scaled_residual) load_scales(w);
    if (config_.layer_inputs > 0) w.input = load_layer_input(config_, *this);
    if (has(Role::layer_scale)) w.scale = values(Role::layer_scale, {1})[0];
    if (!layer_config().feed_forward) return w;
    const bool routed = config_.experts && layer_config().routed;
    if (routed) w.experts = load_experts(config_, layer_, *this);
    if (!routed || config_.experts->beside) load_feed_forward(w);
    if (routed && config_.experts->beside) {
      w.experts_norm = vector(Role::experts_norm, config_.width);
      w.experts_post_norm = vector(Role::experts_post_norm, config_.width);
      w.beside_post_norm = vector(Role::beside_post_norm, config_.width);
    }
    return w;
  }

  void load_norms(LayerWeights& w) const {
    const std::int64_t width = config_.width;
    if (config_.pre_norms) {
      if (layer_config().mixer != Mixer::none) w.attention_norm = vector(Role::attention_norm, width);
      if (layer_config().feed_forward) w.feed_forward_norm = vector(Role::feed_forward_norm, width);
    }
    if (config_.norm == NormKind::layer) {
      w.attention_norm_bias = vector(Role::attention_norm_bias, width);
      w.feed_forward_norm_bias = vector(Role::feed_forward_norm_bias, width);
    }
    if (config_.post_norms) {
      w.attention_post_norm = vector(Role::attention_post_norm, width);
      w.feed_forward_post_norm = vector(Role::feed_forward_post_norm, width);
    }
  }

  void load_attention(LayerWeights& w) {
    const std::int64_t width = config_.width;
    const HeadsConfig heads = heads_of(config_, layer_);
    if (config_.latent) {
      w.latent = load_latent(config_, *this);
      w.output = matrix(Role::attention_output, width, config_.heads * config_.latent->value);
      return;
    }
    const std::int64_t q_rows = heads.q_width(), kv_rows = heads.kv_width();
    const bool own_rows = layer_config().rows_of < 0;
    if (config_.head_norms) {
      w.query_norm = vector(Role::query_norm, config_.heads_normed_together ? q_rows : heads.head_dim);
      if (own_rows)
        w.key_norm = vector(Role::key_norm, config_.heads_normed_together ? kv_rows : heads.head_dim);
    }
    if (config_.value_norm) w.value_norm.assign(static_cast<std::size_t>(heads.head_dim), 1.0f);
    const auto* order = rotation_order();
    if (config_.gated_attention)
      load_gated_query(w);
    else
      w.query = matrix(Role::query, q_rows, width, order);
    if (own_rows) w.key = matrix(Role::key, kv_rows, width, order);
    if (own_rows && !layer_config().values_are_keys)
      w.value = matrix(Role::value, config_.convolved ? kv_rows / 2 : kv_rows, width);
    w.query_bias = optional_vector(Role::query_bias, q_rows, order);
    w.key_bias = optional_vector(Role::key_bias, kv_rows, order);
    w.value_bias = optional_vector(Role::value_bias, kv_rows);
    if (config_.attention_sinks) w.sinks = vector(Role::attention_sinks, config_.heads);
    w.output = matrix(Role::attention_output, width, q_rows);
    w.output_bias = optional_vector(Role::attention_output_bias, width);
    if (!config_.convolved) return;
    w.cca = load_cca(config_, *this);
    weights_.packed_bytes_ += static_cast<std::int64_t>(w.cca->grouped.size() * sizeof(float));
  }

  // Head by head the queries, then as many gates.
  void load_gated_query(LayerWeights& w) {
    std::vector<std::int32_t> queries, gates;
    for (int head = 0; head < config_.heads; ++head)
      for (int i = 0; i < config_.head_dim; ++i) {
        queries.push_back(2 * head * config_.head_dim + i);
        gates.push_back((2 * head + 1) * config_.head_dim + i);
      }
    const auto of = static_cast<std::int64_t>(2 * queries.size());
    w.query = picked_matrix(Role::query, of, config_.width, std::move(queries));
    w.query_gate = picked_matrix(Role::query, of, config_.width, std::move(gates));
  }

  void load_scales(LayerWeights& w) const {
    const std::int64_t width = config_.width;
    w.attention_scale = {
        vector(Role::attention_output_scale, width), vector(Role::attention_output_offset, width),
        vector(Role::attention_residual_scale, width), vector(Role::attention_residual_offset, width)};
    w.feed_forward_scale = {
        vector(Role::feed_forward_output_scale, width), vector(Role::feed_forward_output_offset, width),
        vector(Role::feed_forward_residual_scale, width), vector(Role::feed_forward_residual_offset, width)};
  }

  void load_feed_forward(LayerWeights& w) {
    const std::int64_t width = config_.width, hidden = hidden_of(config_, layer_);
    if (config_.gated) w.gate = matrix(Role::gate, hidden, width);
    w.up = matrix(Role::up, hidden, width);
    w.up_bias = optional_vector(Role::up_bias, hidden);
    w.down = matrix(Role::down, width, hidden);
    w.down_bias = optional_vector(Role::down_bias, width);
  }

  // Row order that turns rotated pairs (2 i, 2 i + 1) of every head into halves (i, i + pairs); nullptr: as
  // they are. Scores do not change, and one rotation kernel serves every architecture.
  const std::vector<std::int32_t>* rotation_order() {
    if (!config_.rope_interleaved) return nullptr;
    if (rotation_ == nullptr) {
      std::vector<std::int32_t> order;
      const int pairs = config_.rope_dims / 2;
      for (int head = 0; head < config_.heads; ++head)
        for (int i = 0; i < config_.head_dim; ++i) {
          const int within = i < pairs ? 2 * i : i < 2 * pairs ? 2 * (i - pairs) + 1 : i;
          order.push_back(head * config_.head_dim + within);
        }
      weights_.orders_.push_back(std::move(order));
      rotation_ = &weights_.orders_.back();
    }
    return rotation_;
  }

  [[noreturn]] void refuse(ErrorCode code, const std::string& why) const {
    throw Error(code, cat(checkpoint_.path(), ": ", why));
  }

  // Where the rows of a role begin in a tensor that holds several, and how many it has.
  std::int64_t fused_start(Role role) const {
    const std::int64_t q_rows = std::int64_t{config_.heads} * config_.head_dim;
    const std::int64_t kv_rows = std::int64_t{config_.kv_heads} * config_.head_dim;
    switch (role) {
      case Role::key:
      case Role::key_bias:
        return q_rows;
      case Role::value:
      case Role::value_bias:
        return q_rows + kv_rows;
      case Role::up:
        return config_.hidden;
      default:
        return 0;
    }
  }
  std::int64_t fused_rows(Role role) const {
    if (role == Role::gate || role == Role::up) return 2 * config_.hidden;
    return (std::int64_t{config_.heads} + 2 * std::int64_t{config_.kv_heads}) * config_.head_dim;
  }

  // columns 0: a vector of `rows` elements.
  StoredTensor find(Role role, std::int64_t rows, std::int64_t columns,
                    const ExpertRows* place = nullptr) const {
    auto tensor = found(role, place);
    if (tensor.rule.fused) rows = fused_rows(role);
    if (place != nullptr) rows = place->of;
    std::vector<std::int64_t> wanted = {rows};
    if (columns > 0) wanted.insert(tensor.rule.transposed ? wanted.begin() : wanted.end(), columns);
    if (tensor.rule.stacked) {
      wanted.insert(wanted.begin(), config_.experts->count);
      rows *= config_.experts->count;
    }
    return checked(std::move(tensor), wanted, rows);
  }

  StoredTensor found(Role role, const ExpertRows* place = nullptr) const {
    const int expert = place != nullptr ? place->expert : 0;
    auto tensor = checkpoint_.find(role, layer_, expert);
    if (!tensor)
      refuse(ErrorCode::bad_format,
             cat("the tensor '", checkpoint_.wanted_name(role, layer_, expert), "' is missing"));
    return std::move(*tensor);
  }

  // `rows`: of all its matrices.
  StoredTensor checked(StoredTensor tensor, const std::vector<std::int64_t>& wanted,
                       std::int64_t rows) const {
    // Extents of 1 carry no meaning.
    const auto telling = [](std::vector<std::int64_t> extents) {
      std::erase(extents, 1);
      return extents;
    };
    if (telling(tensor.shape) != telling(wanted))
      refuse(ErrorCode::bad_format,
             cat("tensor '", tensor.name, "' has shape ", shape_text(checkpoint_.as_written(tensor.shape)),
                 "; the model's metadata asks for ", shape_text(checkpoint_.as_written(wanted))));
    if (tensor.scales.size() > 1 && static_cast<std::int64_t>(tensor.scales.size()) != rows)
      refuse(ErrorCode::bad_format, cat("tensor '", tensor.name, "' has ", tensor.scales.size(),
                                        " scales; it must be 1 or one for each of ", rows, " outputs"));
    return tensor;
  }

  std::vector<float> decoded(const StoredTensor& tensor, std::int64_t n) const {
    if (!tensor.scales.empty())
      refuse(ErrorCode::unsupported,
             cat("tensor '", tensor.name, "' holds 8-bit integers; only matrices may"));
    if (!scales_finite(tensor.dtype, tensor.bytes.data(), n)) packer_.refuse_numbers(tensor);
    std::vector<float> values(static_cast<std::size_t>(n));
    decode_row(tensor.dtype, tensor.bytes.data(), n, values.data());
    return values;
  }

  bool has(Role role) const override { return checkpoint_.find(role, layer_).has_value(); }
  std::vector<float> values(Role role, const std::vector<std::int64_t>& shape) override {
    std::int64_t all = 1;
    for (const std::int64_t extent : shape) all *= extent;
    return decoded(checked(found(role), shape, shape[0]), all);
  }
  WeightMatrix matrix(Role role, std::int64_t rows, std::int64_t columns) override {
    return matrix(role, rows, columns, nullptr);
  }
  WeightMatrix picked_matrix(Role role, std::int64_t of, std::int64_t columns,
                             std::vector<std::int32_t> order) override {
    weights_.orders_.push_back(std::move(order));
    return packed_matrix(find(role, of, columns), 0,
                         static_cast<std::int64_t>(weights_.orders_.back().size()), columns,
                         &weights_.orders_.back());
  }
  WeightMatrix part_matrix(Role role, const MatrixPart& part) override {
    std::int64_t all = 1;
    for (std::size_t i = 0; i + 1 < part.shape.size(); ++i) all *= part.shape[i];
    StoredTensor tensor = checked(found(role), part.shape, all);
    if (!part.transposed) return packed_matrix(tensor, part.first, part.rows, part.columns, nullptr);
    const DTypeInfo& type = dtype_info(tensor.dtype);
    if (!tensor.scales.empty() || type.block_elements > 1)
      refuse(ErrorCode::unsupported,
             cat("tensor '", tensor.name, "' of type ", tensor.scales.empty() ? type.name : "i8",
                 " cannot be turned; F32, F16 and BF16 can"));
    const auto row = static_cast<std::size_t>(part.rows * type.block_bytes);
    tensor.bytes = tensor.bytes.subspan(static_cast<std::size_t>(part.first) * row,
                                        static_cast<std::size_t>(part.columns) * row);
    tensor.shape = {part.columns, part.rows};
    tensor.rule.transposed = true;
    return packed_matrix(tensor, 0, part.rows, part.columns, nullptr);
  }
  WeightMatrix expert_matrix(Role role, std::int64_t rows, std::int64_t columns,
                             const ExpertRows& place) override {
    return matrix(role, rows, columns, nullptr, &place);
  }

  std::vector<float> vector(Role role, std::int64_t n) const {
    const StoredTensor tensor = find(role, n, 0);
    std::vector<float> values = decoded(tensor, tensor.rule.fused ? fused_rows(role) : n);
    if (tensor.rule.fused) {
      values.erase(values.begin(), values.begin() + fused_start(role));
      values.resize(static_cast<std::size_t>(n));
    }
    if (tensor.rule.plus != 0.0f)
      for (float& value : values) value += tensor.rule.plus;
    return values;
  }

  std::vector<float> optional_vector(Role role, std::int64_t n,
                                     const std::vector<std::int32_t>* order = nullptr) const {
    if (!checkpoint_.find(role, layer_)) return {};
    auto values = vector(role, n);
    if (order == nullptr) return values;
    auto sorted = values;
    for (std::size_t i = 0; i < sorted.size(); ++i) sorted[i] = values[static_cast<std::size_t>((*order)[i])];
    return sorted;
  }

  WeightMatrix matrix(Role role, std::int64_t rows, std::int64_t columns,
                      const std::vector<std::int32_t>* order, const ExpertRows* place = nullptr) {
    const StoredTensor tensor = find(role, rows, columns, place);
    std::int64_t first = tensor.rule.fused ? fused_start(role) : 0;
    if (place != nullptr) first = place->first + (tensor.rule.stacked ? place->expert * place->of : 0);
    if (place != nullptr && place->step > 1) order = every_row(place->step, rows);
    return packed_matrix(tensor, first, rows, columns, order);
  }

  const std::vector<std::int32_t>* every_row(std::int64_t step, std::int64_t rows) {
    if (stepped_ == nullptr) {
      weights_.orders_.emplace_back();
      for (std::int64_t i = 0; i < rows; ++i)
        weights_.orders_.back().push_back(static_cast<std::int32_t>(i * step));
      stepped_ = &weights_.orders_.back();
    }
    return stepped_;
  }

  // Rows [first, first + rows) of the tensor in that order.
  WeightMatrix packed_matrix(const StoredTensor& tensor, std::int64_t first, std::int64_t rows,
                             std::int64_t columns, const std::vector<std::int32_t>* order) {
    const StoredRows source(tensor, first, rows, columns, order);
    WeightMatrix w;
    w.dtype = source.dtype();
    w.rows = rows;
    w.columns = columns;

    const bool packs = panel_shape(w.dtype).has_value();
    if (!packs && !source.in_place())
      refuse(ErrorCode::unsupported, cat("tensor '", tensor.name, "' of type ", dtype_info(w.dtype).name,
                                         " cannot be read in the order in which this file holds it"));
    const std::int64_t bytes = packed_bytes(w.dtype, rows, columns);
    const PackedMatrix wanted{
        tensor.name, w.dtype, first, rows, columns, order != nullptr, static_cast<std::uint64_t>(bytes)};
    w.panels = weights_.packed_ ? packed_before(wanted) : packer_.pack(tensor, source, wanted);
    if (!tensor.scales.empty()) {
      std::vector<float> scales(static_cast<std::size_t>(rows), tensor.scales[0]);
      if (tensor.scales.size() > 1)
        for (std::size_t i = 0; i < scales.size(); ++i)
          scales[i] = tensor.scales[static_cast<std::size_t>(first) +
                                    (order != nullptr ? static_cast<std::size_t>((*order)[i]) : i)];
      weights_.scales_.push_back(std::move(scales));
      w.row_scales = weights_.scales_.back().data();
    }
    if (packs) {
      (weights_.packed_ ? weights_.shared_bytes_ : weights_.packed_bytes_) += bytes;
    } else {
      w.blocks = tensor.bytes.data() + first * source.row_bytes();
      w.row_order = order != nullptr ? order->data() : nullptr;
      weights_.mapped_bytes_ += rows * source.row_bytes();
    }
    return w;
  }

  // What was packed was looked at then: of a tensor without panels nothing is touched, either.
  const std::byte* packed_before(const PackedMatrix& wanted) {
    const auto matrices = weights_.packed_->matrices();
    if (next_packed_ == matrices.size() || matrices[next_packed_] != wanted)
      throw Error(ErrorCode::bad_format, cat("the packed matrices are others than the model's: number ",
                                             next_packed_, " is not '", wanted.name, "'"));
    const auto bytes = weights_.packed_->bytes(next_packed_++);
    return bytes.empty() ? nullptr : bytes.data();
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  Weights& weights_;
  MatrixPacker packer_;
  std::size_t next_packed_ = 0;
  const std::vector<std::int32_t>*rotation_ = nullptr, *stepped_ = nullptr;
  int layer_ = 0;
};

Weights::Weights(const Checkpoint& checkpoint, ThreadPool& pool) {
  MemoryPlace place(panels_);
  WeightLoader(checkpoint, pool, *this, place).load();
}

Weights::Weights(const Checkpoint& checkpoint, ThreadPool& pool, PackedFile packed)
    : packed_(std::move(packed)) {
  MemoryPlace nowhere(panels_);
  WeightLoader(checkpoint, pool, *this, nowhere).load();
}

void Weights::pack(const Checkpoint& checkpoint, ThreadPool& pool, PackedWriter& writer) {
  Weights vectors;
  WriterPlace place(writer);
  WeightLoader(checkpoint, pool, vectors, place).load();
  place.finish();
  writer.finish();
}

}  // namespace kvtide
