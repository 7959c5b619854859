#include "shards/arithmetic.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "kernels/attend.h"
#include "kernels/codec.h"
#include "kernels/matmul.h"
#include "kvtide/error.h"
#include "model/cca.h"

namespace kvtide {
namespace {

using Floats = std::vector<float>;

Floats floats(std::int64_t count) { return Floats(static_cast<std::size_t>(count)); }

// One call's view of a shard: the machine, the weights and how many rows there are.
class Rows {
 public:
  Rows(const ShardMachine& machine, const ShardFile& file, std::int64_t count)
      : config(machine.config),
        kernels(machine.kernels.elementwise),
        machine_(machine),
        file_(file),
        count_(count) {}

  const ModelConfig& config;
  const ElementwiseRow& kernels;

  Floats norm(const float* x, const std::string& name = "norm") const {
    const std::int64_t n = config.width;
    Floats out = floats(count_ * n);
    const Floats &weight = file_.vector(name + ".weight"), &bias = file_.vector(name + ".bias");
    for (std::int64_t t = 0; t < count_; ++t) {
      if (config.norm == NormKind::rms)
        kernels.rms_norm(x + t * n, weight.data(), n, config.norm_epsilon, out.data() + t * n);
      else
        kernels.layer_norm(x + t * n, weight.data(), bias.data(), n, config.norm_epsilon, out.data() + t * n);
    }
    return out;
  }

  // Several products of the same rows; biases where the shard has them.
  struct Product {
    const char* name;
    float* y;
    std::int64_t stride = 0;  // 0: rows follow each other
  };
  void multiply(const Floats& x, std::span<const Product> products) const {
    std::vector<MatmulJob> jobs;
    for (const Product& product : products) {
      const WeightMatrix& w = file_.matrix(product.name);
      jobs.push_back({&w, product.y, product.stride > 0 ? product.stride : w.rows});
    }
    const Activations activations{count_, jobs.front().weights->columns, x.data()};
    matmul(machine_.pool, machine_.kernels.matmul, activations, jobs);
    for (std::size_t i = 0; i < products.size(); ++i) add_bias(products[i].name, jobs[i]);
  }

  // x += y, normed first where the architecture has norms behind its layers, scaled where it scales both.
  void add_residual(Floats& y, float* x) const {
    const std::int64_t n = config.width;
    const Floats& weight = file_.vector("post_norm.weight");
    for (std::int64_t t = 0; t < count_; ++t) {
      float* row = y.data() + t * n;
      if (!weight.empty()) kernels.rms_norm(row, weight.data(), n, config.norm_epsilon, row);
      if (file_.residual().empty())
        kernels.add(x + t * n, row, n);
      else
        merge_scaled(file_.residual(), row, x + t * n);
    }
  }

  void norm_head(const char* name, float* head) const {
    const Floats& weight = file_.vector(name);
    if (!weight.empty()) kernels.rms_norm(head, weight.data(), config.head_dim, config.norm_epsilon, head);
  }

 private:
  void add_bias(const char* name, const MatmulJob& job) const {
    const Floats& bias = file_.vector(std::string(name) + ".bias");
    if (bias.empty()) return;
    for (std::int64_t t = 0; t < count_; ++t)
      kernels.add(job.y + t * job.stride, bias.data(), job.weights->rows);
  }

  const ShardMachine& machine_;
  const ShardFile& file_;
  std::int64_t count_;
};

// The rows that a call writes, as they were: put back unless keep() is called.
class Undo {
 public:
  Undo(const ShardRows& state, const ModelConfig& config, const AttentionCall& call)
      : state_(state), config_(config), call_(call) {
    each([&](std::uint16_t* row, std::size_t size) { saved_.insert(saved_.end(), row, row + size); });
  }
  ~Undo() {
    if (kept_) return;
    const std::uint16_t* from = saved_.data();
    each([&](std::uint16_t* row, std::size_t size) {
      std::copy_n(from, size, row);
      from += size;
    });
  }
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;
  void keep() { kept_ = true; }

 private:
  template <class Body>
  void each(Body body) const {
    for (std::uint16_t* part : {state_.keys, state_.values})
      for (std::int64_t head = 0; head < config_.kv_heads; ++head)
        body(part + (head * state_.slots + call_.first) * config_.head_dim,
             static_cast<std::size_t>(call_.columns * config_.head_dim));
  }

  const ShardRows& state_;
  const ModelConfig& config_;
  const AttentionCall& call_;
  std::vector<std::uint16_t> saved_;
  bool kept_ = false;
};

void require_finite(std::span<const float> values, Pos first, const char* what) {
  for (const float value : values)
    if (!(value - value == 0.0f))
      throw Error(ErrorCode::numeric,
                  cat(what, " at position ", first, " or after are not finite; the state is as it was"));
}

// Convolves queries and keys and delays values in place; `carried` grows by what is behind every column.
void convolve(const ShardMachine& machine, const ShardFile& file, const AttentionCall& call,
              CarriedColumns& carried, const CcaRows& rows) {
  const std::int64_t channels = CcaSizes(machine.config).channels;
  Floats u = floats((call.columns + 2) * channels), d = floats((call.columns + 1) * channels);
  const CarriedTensors before = carried.back();
  const auto carry = [&](std::int64_t, std::span<const float> taps, std::span<const float> value) {
    carried.push_back({{taps.begin(), taps.end()}, {value.begin(), value.end()}});
    require_finite(taps, call.first, "convolution states");
    require_finite(value, call.first, "delayed values");
  };
  mix_cca(machine.config, file.cca(), machine.kernels, machine.pool,
          CcaCall{call.columns, before.conv_state, before.prev_value, 0, carry}, {u.data(), d.data()}, rows);
}

// Slots [lowest, last] as attention reads them: nothing outside is touched.
std::vector<std::vector<Span>> spans_of(const ModelConfig& c, const ShardRows& state, Pos lowest, Pos last) {
  std::vector<std::vector<Span>> spans;
  for (int head = 0; head < c.kv_heads; ++head) {
    const std::int64_t offset = (head * state.slots + lowest) * c.head_dim;
    Span span;
    span.keys = reinterpret_cast<const std::byte*>(state.keys + offset);
    span.values = reinterpret_cast<const std::byte*>(state.values + offset);
    span.key_stride = span.value_stride = c.head_dim * std::int64_t{sizeof(std::uint16_t)};
    span.rows = last - lowest + 1;
    span.first = lowest;
    spans.push_back({span});
  }
  return spans;
}

}  // namespace

void run_attention(const ShardMachine& machine, const ShardFile& file, const AttentionCall& call,
                   const ShardRows& state, CarriedColumns& carried, float* rows) {
  const ModelConfig& c = machine.config;
  const Rows work(machine, file, call.columns);
  const std::int64_t dim = c.head_dim, q_width = c.heads * dim, kv_width = c.kv_heads * dim,
                     pairs = c.rope_dims / 2;
  require_finite({rows, static_cast<std::size_t>(call.columns * c.width)}, call.first, "the inputs");

  Floats q = floats(call.columns * q_width), k = floats(call.columns * kv_width), v = k;
  const Rows::Product products[] = {{"query", q.data()},
                                    {"key", k.data()},
                                    {"value", v.data(), kv_width},
                                    {"value_delayed", v.data() + kv_width / 2, kv_width}};
  work.multiply(work.norm(rows), std::span(products, c.convolved ? 4 : 3));
  if (c.convolved) convolve(machine, file, call, carried, {q.data(), k.data(), v.data()});

  Undo undo(state, c, call);
  for (std::int64_t t = 0; t < call.columns; ++t) {
    const auto turn = [&](float* head, const char* norm) {
      work.norm_head(norm, head);
      if (pairs > 0) work.kernels.rope(head, call.cosine + t * pairs, call.sine + t * pairs, pairs);
    };
    for (int h = 0; h < c.heads; ++h) turn(q.data() + t * q_width + h * dim, "query_norm.weight");
    for (int h = 0; h < c.kv_heads; ++h) {
      float* key = k.data() + t * kv_width + h * dim;
      turn(key, "key_norm.weight");
      const std::int64_t slot = (h * state.slots + call.first + t) * dim;
      work.kernels.to_f16(key, dim, state.keys + slot);
      work.kernels.to_f16(v.data() + t * kv_width + h * dim, dim, state.values + slot);
    }
  }
  for (int h = 0; h < c.kv_heads; ++h)
    for (const std::uint16_t* part : {state.keys, state.values}) {
      const auto* written = reinterpret_cast<const std::byte*>(part + (h * state.slots + call.first) * dim);
      if (!scales_finite(DType::f16, written, call.columns * dim))
        throw Error(ErrorCode::numeric, cat("keys or values at position ", call.first,
                                            " or after do not fit f16; the state is as it was"));
    }

  // All columns at once where they see everything; else one by one, so that what lies below a column's
  // first slot is never read.
  Floats mixed = floats(call.columns * q_width);
  const bool together = std::all_of(call.lowest.begin(), call.lowest.end(), [](Pos low) { return low == 0; });
  for (std::int64_t t = 0; t < call.columns; t += together ? call.columns : 1) {
    AttendShape shape;
    shape.first = call.first + t;
    shape.tokens = together ? call.columns : 1;
    shape.heads = c.heads;
    shape.kv_heads = c.kv_heads;
    shape.head_dim = c.head_dim;
    shape.scale = c.attention_scale;
    const auto spans =
        spans_of(c, state, call.lowest[static_cast<std::size_t>(t)], shape.first + shape.tokens - 1);
    const ViewPoint plain{};
    const float* queries = q.data() + t * q_width;
    attend(machine.pool, machine.kernels.attend, {shape, {&plain, 1}, {&queries, 1}, spans},
           mixed.data() + t * q_width);
  }
  Floats change = floats(call.columns * c.width);
  const Rows::Product output[] = {{"output", change.data()}};
  work.multiply(mixed, output);
  work.add_residual(change, rows);
  require_finite({rows, static_cast<std::size_t>(call.columns * c.width)}, call.first, "the results");
  undo.keep();
}

void run_mlp(const ShardMachine& machine, const ShardFile& file, std::int64_t count, float* rows) {
  const ModelConfig& c = machine.config;
  const Rows work(machine, file, count);
  Floats up = floats(count * c.hidden), gate = floats(c.gated ? count * c.hidden : 0);
  const Rows::Product products[] = {{"up", up.data()}, {"gate", gate.data()}};
  work.multiply(work.norm(rows), std::span(products, c.gated ? 2 : 1));
  const auto multiply = c.activation == Activation::silu ? work.kernels.silu_mul : work.kernels.gelu_mul;
  for (std::int64_t t = 0; t < count; ++t) {
    if (c.gated)
      multiply(gate.data() + t * c.hidden, up.data() + t * c.hidden, c.hidden);
    else
      work.kernels.gelu(up.data() + t * c.hidden, c.hidden);
  }
  Floats change = floats(count * c.width);
  const Rows::Product down[] = {{"down", change.data()}};
  work.multiply(c.gated ? gate : up, down);
  work.add_residual(change, rows);
}

void run_moe(const ShardMachine& machine, const ShardFile& file, std::int64_t count, float* router,
             float* rows) {
  const ModelConfig& c = machine.config;
  const Rows work(machine, file, count);
  Floats memory = floats(count * ExpertsScratch::floats_per_token(c)), gate = floats(count * c.hidden),
         up = gate;
  ExpertsScratch scratch = ExpertsScratch::in(memory.data(), c, count);
  scratch.states = router;
  scratch.gate = gate.data();
  scratch.up = up.data();
  const auto multiply = [&](const Activations& x, std::span<const MatmulJob> jobs) {
    matmul(machine.pool, machine.kernels.matmul, x, jobs);
  };
  Floats change = work.norm(rows);
  run_experts({c, file.experts(), machine.kernels.elementwise, machine.pool, multiply}, scratch, 0, count,
              change.data());
  work.add_residual(change, rows);
}

void run_head(const ShardMachine& machine, const ShardFile& file, std::int64_t count, const float* rows,
              float* logits) {
  const Rows work(machine, file, count);
  const Rows::Product head[] = {{"head", logits}};
  work.multiply(work.norm(rows), head);
}

void run_embedding(const ShardMachine& machine, const ShardFile& file, std::span<const TokenId> ids,
                   Pos first, float* rows) {
  const ModelConfig& c = machine.config;
  const ElementwiseRow& kernels = machine.kernels.elementwise;
  Floats position = floats(c.width);
  for (std::size_t t = 0; t < ids.size(); ++t) {
    float* x = rows + static_cast<std::int64_t>(t) * c.width;
    decode_weight_row(machine.kernels.matmul, file.matrix("embedding"), ids[t], x);
    if (c.embedding_scale != 1.0f) kernels.scale(x, c.embedding_scale, c.width);
    if (c.learned_positions) {
      decode_weight_row(machine.kernels.matmul, file.matrix("positions"), first + static_cast<Pos>(t),
                        position.data());
      kernels.add(x, position.data(), c.width);
    }
    const Floats &scale = file.vector("input_scale"), &offset = file.vector("input_offset");
    for (std::size_t i = 0; i < scale.size(); ++i) x[i] = (x[i] + offset[i]) * scale[i];
  }
}

}  // namespace kvtide
