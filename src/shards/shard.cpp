#include "kvtide/shard.h"

#include <algorithm>
#include <map>

#include "base/buffer.h"
#include "base/out_of_memory.h"
#include "base/refuse.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "model/cca_weights.h"
#include "shards/arithmetic.h"
#include "shards/call_check.h"
#include "shards/shard_file.h"
#include "shards/shard_folder.h"
#include "state/arrays/chunk_masks.h"

namespace kvtide {
namespace {

// [channels][columns] of the contract into [columns][channels] of the kernels, and back.
std::vector<float> rows_of(std::span<const float> x, std::int64_t columns) {
  std::vector<float> rows(x.size());
  const auto channels = static_cast<std::int64_t>(x.size()) / columns;
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t t = 0; t < columns; ++t)
      rows[static_cast<std::size_t>(t * channels + c)] = x[static_cast<std::size_t>(c * columns + t)];
  return rows;
}

// `count` of the columns have rows; the others are zeros.
void put_channels(const std::vector<float>& rows, std::int64_t count, std::int64_t columns,
                  std::vector<float>& x) {
  const auto channels = static_cast<std::int64_t>(x.size()) / columns;
  for (std::int64_t t = 0; t < count; ++t)
    for (std::int64_t c = 0; c < channels; ++c)
      x[static_cast<std::size_t>(c * columns + t)] = rows[static_cast<std::size_t>(t * channels + c)];
}

std::vector<float> channels_of(const std::vector<float>& rows, std::int64_t columns) {
  std::vector<float> x(rows.size(), 0.0f);
  put_channels(rows, columns, columns, x);
  return x;
}

}  // namespace

// Tensors are k_state and v_state, and of cca attention conv_state and prev_value, which hold something of
// every column so far: to take columns back, what they held at the newest positions is kept beside.
struct ShardState::Impl {
  std::string shard;
  std::uint32_t weights = 0;  // rows_checksum of its shard
  std::int64_t slots = 0;
  Pos position = 0;
  Buffer memory;
  std::vector<Tensor> tensors;
  std::map<Pos, CarriedTensors> past;  // before `position`, at most kMostColumns of them

  bool carries() const { return tensors.size() > 2; }
  std::span<float> floats(std::size_t tensor) const {
    const auto bytes = tensors[tensor].bytes;
    return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
  }
  CarriedTensors present() const {
    const auto conv = floats(2), value = floats(3);
    return {{conv.begin(), conv.end()}, {value.begin(), value.end()}};
  }
  void set_present(const CarriedTensors& now) {
    std::copy(now.conv_state.begin(), now.conv_state.end(), floats(2).begin());
    std::copy(now.prev_value.begin(), now.prev_value.end(), floats(3).begin());
  }
  // `carried`: at `position`, and behind each of the columns that follow it; `places`: for all but the last.
  void advance(CarriedColumns carried, std::map<Pos, CarriedTensors> places) noexcept {
    set_present(carried.back());
    std::size_t next = 0;
    for (auto& [at, place] : places) place = std::move(carried[next++]);
    past.merge(places);
    position += static_cast<Pos>(carried.size()) - 1;
    past.erase(past.begin(), past.lower_bound(position - kMostColumns));
  }
};

ShardState::ShardState(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ShardState::~ShardState() = default;
ShardState::ShardState(ShardState&&) noexcept = default;
ShardState& ShardState::operator=(ShardState&&) noexcept = default;

const std::string& ShardState::shard() const { return impl_->shard; }
std::int64_t ShardState::slots() const { return impl_->slots; }
Pos ShardState::position() const { return impl_->position; }
std::span<const ShardState::Tensor> ShardState::tensors() const { return impl_->tensors; }
std::int64_t ShardState::bytes() const {
  std::int64_t sum = 0;
  for (const Tensor& tensor : impl_->tensors) sum += static_cast<std::int64_t>(tensor.bytes.size());
  return sum;
}

void ShardState::truncate(Pos n) try {
  if (n < 0 || n > impl_->position)
    refuse(cat("cannot truncate the state of ", impl_->shard, " to ", n, ": it holds ", impl_->position,
               " positions"));
  Impl& s = *impl_;
  if (s.carries() && n < s.position) {
    if (n == 0) {
      std::ranges::fill(s.floats(2), 0.0f);
      std::ranges::fill(s.floats(3), 0.0f);
    } else if (const auto found = s.past.find(n); found != s.past.end()) {
      s.set_present(found->second);
    } else {
      refuse(cat("cannot truncate the state of ", s.shard, " to ", n, ": it holds ", s.position,
                 " positions, and what its conv_state and prev_value were is kept of the newest ",
                 kMostColumns, " only; the smallest that works is ",
                 s.past.empty() ? s.position : s.past.begin()->first, " (or 0)"));
    }
    s.past.erase(s.past.lower_bound(n), s.past.end());
  }
  s.position = n;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

struct Shard::Impl {
  std::shared_ptr<const ShardFolder::Impl> folder;
  const ShardEntry& entry;  // in the folder's manifest
  ShardFile file;
  std::uint32_t rows;  // rows_checksum

  Impl(std::shared_ptr<const ShardFolder::Impl> from, const ShardEntry& which)
      : folder(std::move(from)),
        entry(which),
        file(folder->path, which, folder->manifest.config, folder->pool),
        rows(rows_checksum(folder->manifest, which)) {}

  const ModelConfig& config() const { return folder->manifest.config; }
  ShardMachine machine() const { return {config(), folder->kernels, folder->pool}; }

  void need(ShardKind kind, const char* what) const {
    if (entry.info.kind != kind)
      throw Error(ErrorCode::unsupported, cat("shard ", entry.info.name, " is of the kind ",
                                              shard_kind_name(entry.info.kind), ", which ", what));
  }

  // T of an array [1, D, T, 1].
  std::int64_t columns_of(std::span<const float> x) const {
    const auto size = static_cast<std::int64_t>(x.size());
    const std::int64_t width = config().width, most = folder->manifest.t_max;
    const std::int64_t columns = size / width;
    if (size % width != 0 || columns < 1 || columns > most)
      refuse(cat("shard ", entry.info.name, ": x has ", size, " elements; it must be [1, ", width,
                 ", T, 1] with T from 1 to ", most));
    return columns;
  }
};

Shard::Shard(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Shard::~Shard() = default;
Shard::Shard(Shard&&) noexcept = default;
Shard& Shard::operator=(Shard&&) noexcept = default;

Shard Shard::open(const std::string& folder, const std::string& name, const ShardOptions& options) try {
  return ShardFolder(folder, options).open(name);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

Shard ShardFolder::open(const std::string& name) const try {
  const ShardEntry* entry = impl_->manifest.find(name);
  if (entry == nullptr)
    refuse(cat(impl_->path, ": there is no shard ", quoted(name), "; there are ", impl_->infos.front().name,
               " to ", impl_->infos.back().name));
  return Shard(std::make_unique<Shard::Impl>(impl_, *entry));
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

const ShardInfo& Shard::info() const { return impl_->entry.info; }
std::int64_t Shard::weights_bytes() const { return impl_->file.bytes(); }

ShardState Shard::make_state() const try {
  impl_->need(ShardKind::attention, "keeps no state");
  const ModelConfig& c = impl_->config();
  auto state = std::make_unique<ShardState::Impl>();
  state->shard = info().name;
  state->weights = impl_->rows;
  state->slots = impl_->folder->manifest.slots;
  const std::vector<std::int64_t> shape = {1, c.kv_heads, state->slots, c.head_dim};
  const auto size = static_cast<std::size_t>(c.kv_heads * state->slots * c.head_dim) * sizeof(std::uint16_t);
  const CcaSizes sizes(c);
  const std::size_t rows = (2 * size + sizeof(float) - 1) / sizeof(float) * sizeof(float),
                    conv = static_cast<std::size_t>(2 * sizes.channels) * sizeof(float),
                    value = static_cast<std::size_t>(sizes.kv_width / 2) * sizeof(float);
  state->memory = Buffer(rows + (c.convolved ? conv + value : 0));
  const std::span<std::byte> all(state->memory.data(), state->memory.size());
  state->tensors.push_back({"k_state", shape, ElementType::f16, all.first(size)});
  state->tensors.push_back({"v_state", shape, ElementType::f16, all.subspan(size, size)});
  if (c.convolved) {
    state->tensors.push_back(
        {"conv_state", {1, sizes.channels, 2}, ElementType::f32, all.subspan(rows, conv)});
    state->tensors.push_back(
        {"prev_value", {1, sizes.kv_width / 2}, ElementType::f32, all.subspan(rows + conv, value)});
  }
  return ShardState(std::move(state));
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::vector<float> Shard::predict(const ShardInputs& inputs, ShardState& state) const try {
  impl_->need(ShardKind::attention, "takes no state");
  const ModelConfig& c = impl_->config();
  ShardState::Impl& memory = state.internals();
  if (memory.shard != info().name || memory.weights != impl_->rows)
    refuse(cat("the state belongs to shard ", memory.shard,
               memory.shard == info().name ? " of another folder" : "", "; shard ", info().name,
               " needs one of its own (make_state)"));
  const std::int64_t columns = impl_->columns_of(inputs.x);
  const auto angles = static_cast<std::size_t>(columns * (c.rope_dims / 2));
  if (inputs.rope_cos.size() != angles || inputs.rope_sin.size() != angles)
    refuse(cat("shard ", info().name, ": the rope tables have ", inputs.rope_cos.size(), " and ",
               inputs.rope_sin.size(), " elements; [", columns, ", ", c.rope_dims / 2, "] has ", angles));
  const std::vector<Pos> lowest = read_masks({columns, memory.slots, memory.position, info().window},
                                             inputs.attention_mask, inputs.write_mask);
  check_call(info(), impl_->folder->manifest.ropes, memory.position, lowest, inputs);
  AttentionCall call;
  call.columns = static_cast<std::int64_t>(lowest.size());
  call.first = memory.position;
  call.lowest = lowest;
  call.cosine = inputs.rope_cos.data();
  call.sine = inputs.rope_sin.data();
  std::vector<float> rows = rows_of(inputs.x, columns);
  rows.resize(static_cast<std::size_t>(call.columns * c.width));
  const ShardRows target{reinterpret_cast<std::uint16_t*>(memory.tensors[0].bytes.data()),
                         reinterpret_cast<std::uint16_t*>(memory.tensors[1].bytes.data()), memory.slots};
  CarriedColumns carried;
  std::map<Pos, CarriedTensors> places;
  if (memory.carries()) {
    carried.push_back(memory.present());
    for (Pos at = memory.position; at < memory.position + call.columns; ++at) places[at];
  }
  // Once the state has the rows, nothing may fail for lack of memory.
  std::vector<float> hidden(inputs.x.size(), 0.0f);
  run_attention(impl_->machine(), impl_->file, call, target, carried, rows.data());
  put_channels(rows, call.columns, columns, hidden);
  if (memory.carries())
    memory.advance(std::move(carried), std::move(places));
  else
    memory.position += call.columns;
  return hidden;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::vector<float> Shard::predict(std::span<const float> hidden) const try {
  const std::int64_t columns = impl_->columns_of(hidden);
  std::vector<float> rows = rows_of(hidden, columns);
  if (info().kind == ShardKind::mlp) {
    run_mlp(impl_->machine(), impl_->file, columns, rows.data());
    return channels_of(rows, columns);
  }
  impl_->need(ShardKind::head, info().kind == ShardKind::attention ? "needs masks and a state"
                               : info().kind == ShardKind::moe     ? "needs the router's states"
                                                                   : "takes token ids");
  std::vector<float> logits(static_cast<std::size_t>(columns * (info().vocab_last - info().vocab_first)));
  run_head(impl_->machine(), impl_->file, columns, rows.data(), logits.data());
  return channels_of(logits, columns);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::vector<float> Shard::predict(std::span<const float> hidden, std::span<float> router) const try {
  impl_->need(ShardKind::moe, "has no router");
  const std::int64_t columns = impl_->columns_of(hidden), wide = impl_->config().experts->router_width;
  if (static_cast<std::int64_t>(router.size()) != columns * wide)
    refuse(cat("shard ", info().name, ": router has ", router.size(), " elements; [1, ", wide, ", ", columns,
               ", 1] has ", columns * wide));
  std::vector<float> rows = rows_of(hidden, columns), states = rows_of(router, columns);
  run_moe(impl_->machine(), impl_->file, columns, states.data(), rows.data());
  const std::vector<float> after = channels_of(states, columns);
  std::vector<float> out = channels_of(rows, columns);
  std::copy(after.begin(), after.end(), router.begin());
  return out;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::vector<float> Shard::predict(std::span<const TokenId> ids, Pos first) const try {
  impl_->need(ShardKind::embedding, "takes no token ids");
  const ModelConfig& c = impl_->config();
  const auto columns = static_cast<std::int64_t>(ids.size());
  if (columns < 1 || columns > impl_->folder->manifest.t_max)
    refuse(cat("a call takes 1 to ", impl_->folder->manifest.t_max, " tokens, not ", columns));
  for (const TokenId id : ids)
    if (id < 0 || id >= c.vocab) refuse(cat("token id ", id, " is outside the vocabulary of ", c.vocab));
  if (first < 0 || (c.learned_positions && first + columns > c.context_length))
    throw Error(first < 0 ? ErrorCode::invalid_argument : ErrorCode::context_full,
                cat("position ", first < 0 ? first : first + columns - 1, " is none of the ",
                    c.context_length, " that this model has learned"));
  std::vector<float> rows(static_cast<std::size_t>(columns * c.width));
  run_embedding(impl_->machine(), impl_->file, ids, first, rows.data());
  return channels_of(rows, columns);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
