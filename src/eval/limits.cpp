#include "eval/limits.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "base/buffer.h"
#include "base/stopwatch.h"
#include "kernels/pack.h"
#include "model/loaded_model.h"
#include "state/spec/bytes.h"
#include "state/state_object.h"
#include "tensor/element_type.h"

namespace kvtide {
namespace {

constexpr std::size_t kReadBytes = std::size_t{256} << 20;  // several times the caches of current machines
constexpr std::size_t kPart = std::size_t{1} << 20;         // what one thread reads at a time
constexpr int kRepeats = 5;
constexpr double kTarget = 0.02;  // seconds that one measurement of arithmetic should take

double seconds_of(FunctionRef<void()> body) {
  const Stopwatch watch;
  body();
  return watch.seconds();
}

double best_of(FunctionRef<void()> body) {
  double best = seconds_of(body);
  for (int i = 1; i < kRepeats; ++i) best = std::min(best, seconds_of(body));
  return best;
}

// Billions of operations per second of `burst(rounds)`, which does `operations` per round, on all threads at
// once.
double rate_of(ThreadPool& pool, double operations, FunctionRef<void(std::int64_t)> burst) {
  std::int64_t rounds = 1000;
  while (seconds_of([&] { burst(rounds); }) < kTarget && rounds < (std::int64_t{1} << 40)) rounds *= 2;
  const double seconds = best_of([&] { pool.run(pool.threads(), [&](std::int64_t) { burst(rounds); }); });
  return operations * static_cast<double>(rounds) * pool.threads() / seconds * 1e-9;
}

double matrix_bytes(const WeightMatrix& w) {
  if (w.panels == nullptr)
    return static_cast<double>(w.rows) * static_cast<double>(dtype_bytes(w.dtype, w.columns));
  return static_cast<double>((w.rows + kPanelRows - 1) / kPanelRows) *
         static_cast<double>(panel_bytes(w.dtype, w.columns));
}

void add_product(Work& work, const WeightMatrix& w, std::int64_t rows) {
  if (rows == 0) return;
  work.operations +=
      2.0 * static_cast<double>(w.rows) * static_cast<double>(w.columns) * static_cast<double>(rows);
  work.bytes += matrix_bytes(w);
}

// Of the convolution within heads; the one of single channels is no product.
void add_convolution(Work& work, const ModelConfig& config, const CcaWeights& w, std::int64_t rows) {
  const double taps = 2.0 * static_cast<double>(CcaSizes(config).channels) * config.head_dim;
  work.operations += 2.0 * taps * static_cast<double>(rows);
  work.bytes += static_cast<double>(w.grouped.size()) * sizeof(float);
}

// Every token goes through one expert; of these at least one is read.
void add_experts(Work& work, const ExpertsWeights& w, std::int64_t rows) {
  for (const WeightMatrix* m : {&w.router_down, &w.router_first, &w.router_second, &w.router_out})
    add_product(work, *m, rows);
  const Expert& one = w.experts.front();
  for (const WeightMatrix* m : {&one.gate, &one.up, &one.down}) add_product(work, *m, rows);
}

}  // namespace

MachineLimits measure_limits(ThreadPool& pool, const Kernels& kernels) {
  const ProbeRow& probe = kernels.probe;
  MachineLimits limits;
  std::atomic<std::uint64_t> sink{0};  // keeps the results, and with them the work
  {
    Buffer memory(kReadBytes);
    const auto parts = static_cast<std::int64_t>(kReadBytes / kPart);
    // Written first: pages that nobody wrote are all the same page of zeros.
    pool.run(parts, [&](std::int64_t i) {
      std::fill_n(memory.data() + static_cast<std::size_t>(i) * kPart, kPart, std::byte{1});
    });
    const double seconds = best_of([&] {
      pool.run(parts, [&](std::int64_t i) {
        sink.fetch_xor(probe.read(memory.data() + static_cast<std::size_t>(i) * kPart, kPart),
                       std::memory_order_relaxed);
      });
    });
    limits.read_gb_s = static_cast<double>(kReadBytes) / seconds * 1e-9;
  }
  limits.f32_gflop_s = rate_of(pool, static_cast<double>(probe.fma_flop), [&](std::int64_t rounds) {
    sink.fetch_xor(probe.fma(rounds) > 0.0f ? 1 : 0, std::memory_order_relaxed);
  });
  const AttendRow& attend = kernels.attend;
  limits.bf16_gflop_s = rate_of(pool, static_cast<double>(attend.probe_flop), [&](std::int64_t rounds) {
    sink.fetch_xor(attend.probe_pairs(rounds) > 0.0f ? 1 : 0, std::memory_order_relaxed);
  });
  limits.int8_gop_s = rate_of(pool, static_cast<double>(probe.dot_op), [&](std::int64_t rounds) {
    sink.fetch_xor(static_cast<std::uint64_t>(probe.dot(rounds)), std::memory_order_relaxed);
  });
  return limits;
}

MachineLimits measure_limits(const SessionOptions& options) {
  ThreadPool pool(options.threads);
  return measure_limits(pool, options.kernels.empty() ? best_kernels() : kernels_by_name(options.kernels));
}

Work& Work::operator+=(const Work& other) {
  operations += other.operations;
  bytes += other.bytes;
  return *this;
}

PassWork& PassWork::operator+=(const PassWork& other) {
  matmul += other.matmul;
  attention += other.attention;
  head += other.head;
  return *this;
}

PassWork work_of_pass(const Model& model, const SessionOptions& options, Pos depth, std::int64_t tokens,
                      std::int64_t logit_rows) {
  const ModelConfig& config = model.internals().config;
  const Weights& weights = *model.internals().weights;
  KvSpec types;
  types.key_type = row_dtype(options.key_type);
  types.value_type = row_dtype(options.value_type);
  const auto kv_row = static_cast<double>(
      row_bytes(types, {config.kv_heads, config.head_dim, {}, {}, config.latent.has_value()}));
  PassWork work;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const LayerWeights& w = weights.layer(static_cast<int>(i));
    // In the last layer only rows that become logits go beyond their key and value.
    const std::int64_t rows = i + 1 == config.layers.size() ? logit_rows : tokens;
    if (w.conv) {
      add_product(work.matmul, w.conv->in, tokens);
      add_product(work.matmul, w.conv->out, rows);
    }
    for (const WeightMatrix* matrix : {&w.query, &w.key, &w.value}) add_product(work.matmul, *matrix, tokens);
    if (w.cca) {
      add_product(work.matmul, w.cca->value_delayed, tokens);
      add_convolution(work.matmul, config, *w.cca, tokens);
    }
    for (const WeightMatrix* matrix : {&w.output, &w.gate, &w.up, &w.down})
      add_product(work.matmul, *matrix, rows);
    if (rows == 0) continue;
    if (w.experts) add_experts(work.matmul, *w.experts, rows);
    if (w.conv) continue;
    // Rows before its own that a query at `position` sees.
    const std::optional<std::int64_t> window = config.layers[i].window;
    const auto earlier = [&](Pos position) {
      std::int64_t seen = position;
      for (const auto& limit : {window, options.attention_size})
        if (limit) seen = std::min(seen, *limit - 1);
      if (options.rolling && !window)
        seen = std::min(position, options.rolling->sinks + std::min(seen, options.rolling->window - 1));
      return seen;
    };
    work.attention.bytes += kv_row * static_cast<double>(earlier(depth) + tokens);
    // A product and a sum for every element of every visible key and value.
    for (std::int64_t t = tokens - rows; t < tokens; ++t)
      work.attention.operations += 4.0 * static_cast<double>(config.heads) *
                                   static_cast<double>(config.head_dim) *
                                   static_cast<double>(earlier(depth + t) + 1);
  }
  add_product(work.head, weights.head(), logit_rows);
  return work;
}

PassWork work_of_reading(const Model& model, const SessionOptions& options, Pos depth, std::int64_t tokens) {
  PassWork work;
  for (std::int64_t done = 0; done < tokens;) {
    const std::int64_t pass = std::min(options.prefill_chunk, tokens - done);
    work += work_of_pass(model, options, depth + done, pass, done + pass == tokens ? 1 : 0);
    done += pass;
  }
  return work;
}

PassLimits pass_limits(const MachineLimits& limits, const Model& model, const SessionOptions& options) {
  const LayerWeights& first = model.internals().weights->layer(0);
  const bool quantised = has_integer_panel((first.experts ? first.experts->experts[0].up : first.up).dtype);
  return {quantised && !options.exact ? limits.int8_gop_s : limits.f32_gflop_s,
          options.exact ? limits.f32_gflop_s : limits.bf16_gflop_s, limits.read_gb_s};
}

double least_seconds(const PassWork& work, const PassLimits& limits) {
  const auto part = [&](const Work& of, double gop_s) {
    return 1e-9 * std::max(of.operations / gop_s, of.bytes / limits.read_gb_s);
  };
  return part(work.matmul, limits.products) + part(work.attention, limits.attention) +
         part(work.head, limits.products);
}

MachineLimits best_of_both(const MachineLimits& a, const MachineLimits& b) {
  return {std::max(a.read_gb_s, b.read_gb_s), std::max(a.f32_gflop_s, b.f32_gflop_s),
          std::max(a.bf16_gflop_s, b.bf16_gflop_s), std::max(a.int8_gop_s, b.int8_gop_s)};
}

}  // namespace kvtide
