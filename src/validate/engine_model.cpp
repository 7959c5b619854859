#include "validate/engine_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/out_of_memory.h"
#include "engine/session_spec.h"
#include "model/loaded_model.h"
#include "state/snapshot.h"
#include "state/state_rows.h"
#include "validate/memory_file.h"
#include "validate/plain_weights.h"

namespace kvtide {
namespace {

struct EngineState final : TestedState {
  explicit EngineState(KvState state) : kv(std::move(state)) {}
  KvState kv;
};

KvState& memory_of(TestedState& state) { return EngineModel::memory(state); }

}  // namespace

EngineModel::EngineModel(const Model& model, const SessionOptions& options, std::int64_t largest_chunk)
    : model_(model),
      config_(model.internals().config),
      options_(options),
      largest_chunk_(largest_chunk),
      kernels_(options.kernels.empty() ? best_kernels() : kernels_by_name(options.kernels)),
      pool_(completed(config_, options).threads),
      workspace_(config_, largest_chunk) {
  require_known(config_);
}

KvState& EngineModel::memory(TestedState& state) { return static_cast<EngineState&>(state).kv; }

TestedShape EngineModel::shape() const {
  TestedShape shape;
  shape.name = model_.name();
  for (const LayerConfig& layer : config_.layers)
    shape.layers.push_back(layer.mixer == Mixer::attention
                               ? StateLayer{config_.kv_heads, config_.head_dim, layer.window}
                               : StateLayer{});
  shape.width = config_.width;
  shape.vocab = config_.vocab;
  shape.largest_chunk = largest_chunk_;
  shape.gives_hidden = shape.isolates = shape.gives_rows = shape.truncates = true;
  shape.forks = shape.snapshots = shape.poisons = shape.keeps_capacity = true;
  return shape;
}

std::unique_ptr<TestedState> EngineModel::make_state(std::int64_t capacity) {
  SessionOptions options;
  options.key_type = options_.key_type;
  options.value_type = options_.value_type;
  // Learned positions end; what is beyond them is refused either way.
  options.context = config_.learned_positions ? std::min(capacity, config_.context_length) : capacity;
  options.prefill_chunk = std::min(largest_chunk_, options.context);
  options.slack = largest_chunk_;
  KvSpec spec = kv_spec(config_, completed(config_, options));
  for (LayerSpec& layer : spec.layers) layer.values_in_keys = false;  // as references have them: behind zeros
  return std::make_unique<EngineState>(KvState(spec));
}

Reading EngineModel::read(TestedState& state, std::span<const TokenId> tokens,
                          std::span<const float> inputs) {
  DecoderContext context{config_, *model_.internals().weights, kernels_, pool_, {}, options_.exact};
  const auto count = static_cast<std::int64_t>(tokens.size());
  const auto layer_size = static_cast<std::size_t>(count * config_.width);
  Reading reading;
  reading.hidden.reserve(layer_size * (config_.layers.size() + 1));
  context.on_layer = [&](int layer, std::span<float> stream) {
    reading.hidden.insert(reading.hidden.end(), stream.begin(), stream.end());
    if (inputs.empty() || static_cast<std::size_t>(layer) == config_.layers.size()) return;
    const auto given = inputs.subspan(static_cast<std::size_t>(layer) * layer_size, layer_size);
    std::copy(given.begin(), given.end(), stream.begin());
  };
  const auto hidden = forward(context, workspace_, {memory_of(state), tokens, count});
  reading.logits.resize(static_cast<std::size_t>(count * config_.vocab));
  logits(context, workspace_, hidden.data(), count, reading.logits.data());
  return reading;
}

HeldRows EngineModel::rows(TestedState& state, int layer) {
  HeldRows out;
  const std::vector<int> with_rows = attention_layers(config_);
  const auto found = std::find(with_rows.begin(), with_rows.end(), layer);
  if (found == with_rows.end()) return out;
  layer = static_cast<int>(found - with_rows.begin());
  const StateRows stored(memory_of(state));
  out.kv_heads = config_.kv_heads;
  out.head_dim = config_.head_dim;
  const auto& runs = stored.runs(layer);
  if (runs.empty()) return out;
  out.first = runs.front().first;
  out.rows = runs.back().last - out.first;
  const auto size = static_cast<std::size_t>(out.kv_heads * out.rows * out.head_dim);
  out.keys.resize(size);
  out.values.resize(size);
  for (int head = 0; head < config_.kv_heads; ++head)
    for (Pos row = 0; row < out.rows; ++row) {
      const auto at = (head * out.rows + row) * out.head_dim;
      stored.read(layer, head, KvPart::keys, out.first + row, out.keys.data() + at);
      stored.read(layer, head, KvPart::values, out.first + row, out.values.data() + at);
    }
  return out;
}

void EngineModel::truncate(TestedState& state, Pos length) { memory_of(state).apply(Truncate{length}); }

std::unique_ptr<TestedState> EngineModel::fork(TestedState& state) {
  return std::make_unique<EngineState>(memory_of(state).fork());
}

std::unique_ptr<TestedState> EngineModel::through_snapshot(TestedState& state) {
  MemoryFile file;
  SnapshotExtras extras;
  extras.exact = options_.exact;
  extras.tokens.resize(static_cast<std::size_t>(memory_of(state).position()));
  save_snapshot(file, "state", memory_of(state), extras);
  auto copy = std::make_unique<EngineState>(load_snapshot(file, "state").state);
  copy->kv.set_max_step(largest_chunk_);
  return copy;
}

void EngineModel::poison(TestedState& state, float value) {
  KvState& kv = memory_of(state);
  const std::int64_t tokens = std::min(kv.room(), kv.step_room());
  if (tokens < 1) return;
  const KvState::Step step_rows = [&] {
    KvState::Step step = kv.begin(tokens);
    const std::vector<float> row(static_cast<std::size_t>(config_.head_dim), value);
    for (int layer = 0; layer < static_cast<int>(attention_layers(config_).size()); ++layer)
      for (int head = 0; head < config_.kv_heads; ++head)
        for (std::int64_t t = 0; t < tokens; ++t)
          step.write(kernels_.elementwise, layer, head, t, row.data(), row.data());
    return step;
  }();
}

std::unique_ptr<TestedModel> tested_model(const Model& model, const SessionOptions& options,
                                          std::int64_t largest_chunk) try {
  return std::make_unique<EngineModel>(model, options, largest_chunk);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
