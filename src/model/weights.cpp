#include "model/weights.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>

#include "base/text.h"
#include "kernels/codec.h"
#include "kernels/pack.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::int64_t kSliceBytes = std::int64_t{8} << 20;  // of the file, packed between two releases

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) text += cat(text.size() > 1 ? ", " : "", extent);
  return text + "]";
}

}  // namespace

class WeightLoader {
 public:
  WeightLoader(const GgufFile& file, const ModelConfig& config, ThreadPool& pool, Weights& weights)
      : file_(file), config_(config), pool_(pool), weights_(weights) {}

  void load() {
    const std::int64_t width = config_.width;
    weights_.embedding_ = matrix("token_embd.weight", config_.vocab, width);
    weights_.head_ = file_.find_tensor("output.weight") != nullptr
                         ? matrix("output.weight", config_.vocab, width)
                         : weights_.embedding_;
    weights_.output_norm_ = vector("output_norm.weight", width);
    for (std::size_t i = 0; i < config_.layers.size(); ++i)
      weights_.layers_.push_back(layer(cat("blk.", i, ".")));
  }

 private:
  LayerWeights layer(const std::string& prefix) {
    const std::int64_t width = config_.width, head_dim = config_.head_dim;
    const std::int64_t q_rows = config_.heads * head_dim, kv_rows = config_.kv_heads * head_dim;
    LayerWeights w;
    w.attention_norm = vector(prefix + "attn_norm.weight", width);
    w.feed_forward_norm = vector(prefix + "ffn_norm.weight", width);
    if (config_.post_norms) {
      w.attention_post_norm = vector(prefix + "post_attention_norm.weight", width);
      w.feed_forward_post_norm = vector(prefix + "post_ffw_norm.weight", width);
    }
    if (config_.head_norms) {
      w.query_norm = vector(prefix + "attn_q_norm.weight", head_dim);
      w.key_norm = vector(prefix + "attn_k_norm.weight", head_dim);
    }
    const auto* order = rotation_order();
    w.query = matrix(prefix + "attn_q.weight", q_rows, width, order);
    w.key = matrix(prefix + "attn_k.weight", kv_rows, width, order);
    w.value = matrix(prefix + "attn_v.weight", kv_rows, width);
    w.query_bias = optional_vector(prefix + "attn_q.bias", q_rows, order);
    w.key_bias = optional_vector(prefix + "attn_k.bias", kv_rows, order);
    w.value_bias = optional_vector(prefix + "attn_v.bias", kv_rows);
    w.output = matrix(prefix + "attn_output.weight", width, q_rows);
    w.gate = matrix(prefix + "ffn_gate.weight", config_.hidden, width);
    w.up = matrix(prefix + "ffn_up.weight", config_.hidden, width);
    w.down = matrix(prefix + "ffn_down.weight", width, config_.hidden);
    return w;
  }

  // Row order that turns rotated pairs (2 i, 2 i + 1) of every head into halves (i, i + pairs); nullptr: as
  // they are. Scores do not change, and one rotation kernel serves every architecture.
  const std::vector<std::int32_t>* rotation_order() {
    if (!config_.rope_interleaved) return nullptr;
    if (weights_.orders_.empty()) {
      std::vector<std::int32_t> order;
      const int pairs = config_.rope_dims / 2;
      for (int head = 0; head < config_.heads; ++head)
        for (int i = 0; i < config_.head_dim; ++i) {
          const int within = i < pairs ? 2 * i : i < 2 * pairs ? 2 * (i - pairs) + 1 : i;
          order.push_back(head * config_.head_dim + within);
        }
      weights_.orders_.push_back(std::move(order));
    }
    return &weights_.orders_.front();
  }

  [[noreturn]] void refuse(ErrorCode code, const std::string& why) const {
    throw Error(code, cat(file_.path(), ": ", why));
  }

  const GgufTensor& find(const std::string& name, std::span<const std::int64_t> shape) const {
    const GgufTensor* tensor = file_.find_tensor(name);
    if (tensor == nullptr) refuse(ErrorCode::bad_format, cat("the tensor '", name, "' is missing"));
    // Trailing dimensions of 1 carry no meaning.
    auto extents = tensor->shape;
    while (extents.size() > shape.size() && extents.back() == 1) extents.pop_back();
    if (!std::equal(extents.begin(), extents.end(), shape.begin(), shape.end()))
      refuse(ErrorCode::bad_format, cat("tensor '", name, "' has shape ", shape_text(tensor->shape),
                                        "; the model's metadata asks for ", shape_text(shape)));
    return *tensor;
  }

  [[noreturn]] void refuse_numbers(const std::string& name) const {
    refuse(ErrorCode::numeric,
           cat("tensor '", name, "' holds NaN or infinity; weights must be finite numbers"));
  }

  std::vector<float> vector(const std::string& name, std::int64_t n) const {
    const std::int64_t shape[] = {n};
    const GgufTensor& tensor = find(name, shape);
    if (!scales_finite(tensor.dtype, tensor.data.data(), n)) refuse_numbers(name);
    std::vector<float> values(static_cast<std::size_t>(n));
    decode_row(tensor.dtype, tensor.data.data(), n, values.data());
    return values;
  }

  std::vector<float> optional_vector(const std::string& name, std::int64_t n,
                                     const std::vector<std::int32_t>* order = nullptr) const {
    if (file_.find_tensor(name) == nullptr) return {};
    auto values = vector(name, n);
    if (order == nullptr) return values;
    auto sorted = values;
    for (std::size_t i = 0; i < sorted.size(); ++i) sorted[i] = values[static_cast<std::size_t>((*order)[i])];
    return sorted;
  }

  WeightMatrix matrix(const std::string& name, std::int64_t rows, std::int64_t columns,
                      const std::vector<std::int32_t>* order = nullptr) {
    const std::int64_t shape[] = {columns, rows};
    const GgufTensor& tensor = find(name, shape);
    WeightMatrix w;
    w.dtype = tensor.dtype;
    w.rows = rows;
    w.columns = columns;
    w.blocks = tensor.data.data();
    w.row_order = order != nullptr ? order->data() : nullptr;

    const bool packs = panel_shape(tensor.dtype).has_value();
    const std::int64_t panels = (rows + kPanelRows - 1) / kPanelRows;
    const std::int64_t panel_size = packs ? panel_bytes(tensor.dtype, columns) : 0;
    std::byte* target = nullptr;
    if (packs) {
      weights_.panels_.emplace_back(static_cast<std::size_t>(panels * panel_size));
      target = weights_.panels_.back().data();
    }
    std::atomic<bool> finite{true};
    const std::int64_t row_bytes = dtype_bytes(tensor.dtype, columns);
    const auto pack_one = [&](std::int64_t panel) {
      const std::byte* sources[kPanelRows] = {};
      for (std::int64_t r = 0; r < kPanelRows && panel * kPanelRows + r < rows; ++r) {
        const std::int64_t row = panel * kPanelRows + r;
        sources[r] = w.blocks + (w.row_order != nullptr ? w.row_order[row] : row) * row_bytes;
        if (!scales_finite(tensor.dtype, sources[r], columns)) finite.store(false, std::memory_order_relaxed);
      }
      if (packs) pack_panel(tensor.dtype, sources, columns, target + panel * panel_size);
    };
    // Slice by slice, letting go of the file's pages behind: the peak is one copy of the weights and one
    // slice.
    const std::int64_t slice = std::max<std::int64_t>(1, kSliceBytes / (row_bytes * kPanelRows));
    for (std::int64_t first = 0; first < panels; first += slice) {
      const std::int64_t count = std::min(slice, panels - first);
      pool_.run(count, [&](std::int64_t i) { pack_one(first + i); });
      file_.release(
          tensor, static_cast<std::size_t>(first * kPanelRows * row_bytes),
          static_cast<std::size_t>(std::min(count * kPanelRows, rows - first * kPanelRows) * row_bytes));
    }
    if (!finite.load()) refuse_numbers(name);
    if (packs) {
      w.panels = target;
      w.blocks = nullptr;
      w.row_order = nullptr;
      weights_.packed_bytes_ += panels * panel_size;
    } else {
      weights_.mapped_bytes_ += static_cast<std::int64_t>(tensor.data.size());
    }
    return w;
  }

  const GgufFile& file_;
  const ModelConfig& config_;
  ThreadPool& pool_;
  Weights& weights_;
};

Weights::Weights(const GgufFile& file, const ModelConfig& config, ThreadPool& pool) {
  WeightLoader(file, config, pool, *this).load();
}

}  // namespace kvtide
