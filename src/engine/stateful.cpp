#include "kvtide/stateful.h"

#include <algorithm>
#include <cstring>

#include "base/out_of_memory.h"
#include "base/refuse.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "model/loaded_model.h"

namespace kvtide {
namespace {

StateSpec spec_of(const ModelConfig& config, const SessionOptions& options) {
  KvShape shape;
  shape.layers = static_cast<std::int64_t>(config.layers.size());
  shape.kv_heads = config.kv_heads;
  shape.capacity = options.context;
  shape.head_dim = config.head_dim;
  shape.key_type = options.key_type;
  shape.value_type = options.value_type;
  for (const LayerConfig& layer : config.layers)
    if (layer.window)
      refuse("a model with sliding windows does not keep all of a text; keyCache and valueCache do");
  if (!even_layers(config)) refuse("a model whose layers differ in their heads has no keyCache of one shape");
  if (carries(config))
    refuse(
        "this model's layers carry more than rows from token to token, which keyCache and valueCache lack");
  return stacked_spec(shape);
}

}  // namespace

struct StatefulModel::Impl {
  Session session;
  StateSpec spec;

  Impl(const Model& model, const SessionOptions& options)
      : session(model, options), spec(spec_of(model.internals().config, session.options())) {
    if (options.rolling || options.procedural)
      refuse("a stateful model keeps every token that it reads; the memory cannot be rolling or procedural");
  }

  std::string identity() const { return session.model().identity().at("model"); }
};

StatefulModel::StatefulModel(const Model& model, const SessionOptions& options) try
    : impl_(std::make_unique<Impl>(model, options)) {
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}
StatefulModel::~StatefulModel() = default;
StatefulModel::StatefulModel(StatefulModel&&) noexcept = default;
StatefulModel& StatefulModel::operator=(StatefulModel&&) noexcept = default;

std::span<const float> StatefulModel::predict(std::span<const TokenId> input_ids,
                                              std::span<const std::int32_t> attention_mask) try {
  const auto given = static_cast<std::int64_t>(attention_mask.size());
  const auto count = static_cast<std::int64_t>(input_ids.size());
  const std::int64_t past = past_length(), active = past + count;
  if (count == 0) refuse("a call needs at least one token id");
  if (given != active)
    refuse(cat("the attention mask has length ", given, ", but ", active, " tokens are active: ", past,
               " in the state and ", count, " in this call; the mask covers them all",
               given == count ? ", and one of this call's tokens alone would hide the state from them" : ""));
  const auto hidden =
      std::find_if(attention_mask.begin(), attention_mask.end(), [](std::int32_t seen) { return seen != 1; });
  if (hidden != attention_mask.end())
    refuse(cat("the attention mask is ", *hidden, " at position ", hidden - attention_mask.begin(),
               "; every active token is seen, so it must be 1 throughout (leave padding out)"));
  impl_->session.read(input_ids);
  return impl_->session.logits();
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::int64_t StatefulModel::past_length() const { return impl_->session.position(); }
const Session& StatefulModel::session() const { return impl_->session; }
void StatefulModel::reset() { impl_->session.clear(); }

NamedState StatefulModel::state() const try {
  const State& memory = impl_->session.state();
  const ModelConfig& config = impl_->session.model().internals().config;
  StateSpec spec = impl_->spec;
  spec.model = impl_->identity();
  NamedState out = make_state(spec);
  const std::int64_t length = past_length(), dim = config.head_dim;
  const PosRange all{0, length};
  const std::size_t row = static_cast<std::size_t>(dim);
  std::vector<std::vector<float>> keys, values;  // by layer: [kv_heads][positions][head_dim]
  for (int layer = 0; layer < static_cast<int>(config.layers.size()); ++layer) {
    const auto size = static_cast<std::size_t>(config.kv_heads * length * dim);
    keys.emplace_back(size);
    values.emplace_back(size);
    if (length == 0) continue;
    memory.read(layer, KvPart::keys, all, keys.back());
    memory.read(layer, KvPart::values, all, values.back());
  }
  // A step of a named state is limited; rows are copied in runs.
  constexpr std::int64_t kRun = 1024;
  for (std::int64_t first = 0; first < length; first += kRun)
    out.append(std::min(kRun, length - first), [&](const Row& target) {
      const auto layer = static_cast<std::size_t>(target.layer);
      const auto at = static_cast<std::ptrdiff_t>((target.kv_head * length + first + target.token) * dim);
      std::copy_n(keys[layer].begin() + at, row, target.key.begin());
      std::copy_n(values[layer].begin() + at, row, target.value.begin());
    });
  return out;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

void StatefulModel::set_state(const NamedState& state, std::span<const TokenId> tokens) try {
  const ModelConfig& config = impl_->session.model().internals().config;
  const std::int64_t length = state.position(), dim = config.head_dim, capacity = state.capacity();
  const StateSpec given = state.spec();
  const auto same = [](const TensorSpec& a, const TensorSpec& b) {
    return a.name == b.name && a.role == b.role;
  };
  if (!std::equal(given.tensors.begin(), given.tensors.end(), impl_->spec.tensors.begin(),
                  impl_->spec.tensors.end(), same))
    refuse("the state must hold keyCache, valueCache and pastLen, as state() gives them");
  for (std::size_t i = 0; i < 2; ++i) {
    auto wanted = impl_->spec.tensors[i].shape;
    wanted[3] = capacity;
    if (given.tensors[i].shape != wanted)
      refuse(cat("tensor '", given.tensors[i].name, "' of the state belongs to a model of another shape"));
  }
  if (const std::string own = given.model.empty() ? "" : impl_->identity(); given.model != own)
    refuse(cat("the state belongs to another model, whose files have the SHA-256 ", given.model,
               "; those of this one have ", own, ". Rows mean something only to the model that wrote them"));
  if (static_cast<std::int64_t>(tokens.size()) != length)
    refuse(cat("the state has read ", length, " tokens, but ", tokens.size(), " are given"));
  if (length > impl_->session.context())
    refuse(
        cat("the state has read ", length, " tokens, more than the context of ", impl_->session.context()));

  StateShape shape = impl_->session.state().shape();
  State memory(shape, length, {tokens.begin(), tokens.end()});
  for (std::size_t part = 0; part < 2 && length > 0; ++part) {
    ReadTensor options;
    options.type = ElementType::f32;
    const std::vector<std::byte> bytes = state.read_tensor(given.tensors[part].name, options).bytes;
    std::vector<float> rows(static_cast<std::size_t>(config.kv_heads * length * dim));
    for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
      for (int head = 0; head < config.kv_heads; ++head)
        std::memcpy(
            rows.data() + head * length * dim,
            bytes.data() + (static_cast<std::int64_t>(layer) * config.kv_heads + head) * capacity * dim * 4,
            static_cast<std::size_t>(length * dim) * sizeof(float));
      memory.write(static_cast<int>(layer), part == 0 ? KvPart::keys : KvPart::values, {0, length}, rows);
    }
  }
  impl_->session.restore(memory);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
