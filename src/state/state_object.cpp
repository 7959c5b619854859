#include "state/state_object.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/out_of_memory.h"
#include "base/refuse.h"
#include "base/text.h"
#include "kernels/codec.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

StateImage image_of(const StateShape& shape, Pos position, bool windows_only) {
  StateImage image;
  image.spec = spec_of(shape);
  image.position = position;
  if (position < 0 || position > shape.capacity)
    refuse(cat("a state of ", shape.capacity, " rows cannot hold ", position, " positions"));
  if (shape.rolling && position > shape.rolling->sinks + shape.rolling->window)
    refuse(cat("a rolling window that has moved on cannot be made from plain rows: ", position,
               " positions are more than ", shape.rolling->sinks, " sinks and ", shape.rolling->window));
  if (position > 0) image.segments = {{0, position, 0}};
  for (const StateLayer& layer : shape.layers) {
    const Pos first = windows_only && layer.window ? std::max<Pos>(0, position - *layer.window) : 0;
    image.released.push_back(first);
    image.forgotten.push_back(0);
    image.runs.emplace_back();
    if (first < position) image.runs.back().push_back({first, position});
  }
  return image;
}

}  // namespace

KvSpec spec_of(const StateShape& shape) {
  KvSpec spec;
  for (const StateLayer& layer : shape.layers)
    spec.layers.push_back({layer.kv_heads, layer.head_dim, layer.window});
  spec.key_type = row_dtype(shape.key_type);
  spec.value_type = row_dtype(shape.value_type);
  spec.capacity = shape.capacity;
  spec.slack = shape.slack;
  spec.checkpoints = shape.checkpoints;
  spec.rolling = shape.rolling;
  spec.rotary = shape.rotary;
  return spec;
}

void follow(SnapshotExtras& extras, const Transition& transition, const TransitionRecord& record) {
  const auto* truncate = std::get_if<Truncate>(&transition);
  if (truncate == nullptr) return;
  const Pos length = truncate->length - record.read_again;
  if (length >= record.position) return;
  if (!extras.tokens.empty()) extras.tokens.resize(static_cast<std::size_t>(length));
  extras.logits.clear();
}

State::State(const StateShape& shape) try
    : impl_(std::make_unique<Impl>(Impl{KvState(spec_of(shape)), SnapshotExtras{}})) {
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

State::State(const StateShape& shape, Pos position, std::vector<TokenId> tokens, bool windows_only) try {
  check(spec_of(shape));
  if (!tokens.empty() && static_cast<std::int64_t>(tokens.size()) != position)
    refuse(cat(tokens.size(), " tokens do not fill ", position, " positions"));
  for (const TokenId token : tokens)
    if (token < 0) refuse(cat("token id ", token, " is negative"));
  impl_ = std::make_unique<Impl>(Impl{KvState(image_of(shape, position, windows_only)), SnapshotExtras{}});
  impl_->extras.tokens = std::move(tokens);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

State::State(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
State::~State() = default;
State::State(State&&) noexcept = default;
State& State::operator=(State&&) noexcept = default;

State state_of(Snapshot snapshot, const std::string& path) {
  const auto count = static_cast<std::int64_t>(snapshot.extras.tokens.size());
  if (count != 0 && count != snapshot.state.position())
    throw Error(ErrorCode::bad_format, cat(path, ": the snapshot holds ", count, " tokens for ",
                                           snapshot.state.position(), " positions"));
  return State(
      std::make_unique<State::Impl>(State::Impl{std::move(snapshot.state), std::move(snapshot.extras)}));
}

State State::load(const std::string& path) try {
  PosixFiles files;
  return state_of(load_snapshot(files, path), path);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

void State::save(const std::string& path) const try {
  PosixFiles files;
  save_snapshot(files, path, impl_->kv, impl_->extras);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

StateShape State::shape() const try {
  const KvSpec& spec = impl_->kv.spec();
  StateShape shape;
  for (const LayerSpec& layer : spec.layers)
    shape.layers.push_back({layer.kv_heads, layer.head_dim, layer.window});
  shape.key_type = element_type_of(spec.key_type);
  shape.value_type = element_type_of(spec.value_type);
  shape.capacity = spec.capacity;
  shape.slack = spec.slack;
  shape.checkpoints = spec.checkpoints;
  shape.rolling = spec.rolling;
  shape.rotary = spec.rotary;
  return shape;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

Pos State::position() const { return impl_->kv.position(); }
std::int64_t State::rows() const { return impl_->kv.rows(); }
std::int64_t State::capacity() const { return impl_->kv.capacity(); }
std::optional<std::int64_t> State::attention_size() const { return impl_->kv.attention_size(); }
std::optional<std::int64_t> State::budget() const {
  const auto& procedural = impl_->kv.spec().procedural;
  return procedural ? std::optional(procedural->budget) : std::nullopt;
}
std::int64_t State::held_bytes() const { return impl_->kv.held_bytes(); }
std::int64_t State::shared_bytes() const { return impl_->kv.shared_bytes(); }
std::int64_t State::capacity_bytes() const { return impl_->kv.capacity_bytes(); }
const std::vector<TokenId>& State::tokens() const { return impl_->extras.tokens; }
std::span<const float> State::logits() const { return impl_->extras.logits; }
const std::map<std::string, std::string>& State::identity() const { return impl_->extras.identity; }
void State::set_identity(std::map<std::string, std::string> identity) {
  impl_->extras.identity = std::move(identity);
}

const std::vector<Pos>& State::checkpoints() const { return impl_->kv.checkpoints(); }
std::int64_t State::checkpoint_bytes() const {
  return or_out_of_memory([&] { return impl_->kv.checkpoint_bytes(); });
}
bool State::checkpoint() {
  return or_out_of_memory([&] { return impl_->kv.checkpoint(); });
}

TransitionPlan State::plan(const Transition& transition) const {
  return or_out_of_memory([&] { return impl_->kv.plan(transition); });
}

TransitionRecord State::apply(const TransitionPlan& plan) try {
  TransitionRecord record = impl_->kv.apply(plan);
  follow(impl_->extras, plan.transition(), record);
  return record;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

State State::fork() const {
  return or_out_of_memory([&] {
    return State(std::make_unique<Impl>(Impl{impl_->kv.fork(), impl_->extras}));
  });
}

}  // namespace kvtide
