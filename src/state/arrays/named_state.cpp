// named_state.cpp: kvtide::NamedState: named tensors over a KvState.
#include <algorithm>
#include <cstring>
#include <map>

#include "base/out_of_memory.h"
#include "base/refuse.h"
#include "base/text.h"
#include "kernels/kernels.h"
#include "kvtide/error.h"
#include "state/arrays/layout_rows.h"
#include "state/arrays/named_tensors.h"
#include "state/snapshot.h"
#include "tensor/element_type.h"

namespace kvtide {
namespace {

constexpr std::int64_t kLargestStep = 4096;  // tokens appended at once

}  // namespace

struct NamedState::Impl {
  StateSpec spec;
  NamedTensors named;
  KvState memory;

  explicit Impl(const StateSpec& s) : spec(s), named(resolve(s)), memory(with_steps(named.memory)) {}
  Impl(const Impl& other, KvState rows) : spec(other.spec), named(other.named), memory(std::move(rows)) {}

  static KvSpec with_steps(KvSpec memory) {
    memory.max_step = std::min(memory.capacity, kLargestStep);
    return memory;
  }

  const NamedTensor& find(std::string_view name) const {
    for (const NamedTensor& tensor : named.tensors)
      if (tensor.spec.name == name) return tensor;
    std::string names;
    for (const NamedTensor& tensor : named.tensors) names += cat(names.empty() ? "" : ", ", tensor.spec.name);
    refuse(cat("there is no tensor ", quoted(std::string(name)), "; there are: ", names));
  }

  LayoutArray array_of(const NamedTensor& tensor, const PosRange& rows) const {
    LayoutArray array;
    array.name = tensor.spec.name;
    array.shape = shape_at(tensor, memory.capacity());
    array.dtype = row_dtype(tensor.spec.type);
    array.blocks = tensor.blocks;
    array.rows = rows;
    array.capacity = array_capacity(tensor, memory.capacity());
    return array;
  }

  // The image of a state that read `position` tokens and holds what the tensors hold of them.
  StateImage image_at(Pos position) const {
    StateImage image;
    image.spec = memory.spec();
    image.position = position;
    image.attention_size = memory.attention_size();
    if (position > 0) image.segments = {{0, position, 0}};
    if (memory.recurrent().count() > 0) image.recurrent = {position};
    for (const LayerSpec& layer : image.spec.layers) {
      const Pos first = layer.window ? std::max<Pos>(0, position - *layer.window) : 0;
      image.released.push_back(first);
      image.forgotten.push_back(0);
      image.runs.emplace_back();
      if (position > first) image.runs.back().push_back({first, position});
    }
    return image;
  }

  std::map<std::string, std::string> identity() const {
    std::map<std::string, std::string> out = {{"tensors", signature(named)}};
    if (!spec.model.empty()) out["model"] = spec.model;
    return out;
  }

  PosRange rows_at(const NamedTensor& tensor, Pos position) const {
    return {tensor.spec.window ? std::max<Pos>(0, position - *tensor.spec.window) : 0, position};
  }
};

NamedState::NamedState(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NamedState::~NamedState() = default;
NamedState::NamedState(NamedState&&) noexcept = default;
NamedState& NamedState::operator=(NamedState&&) noexcept = default;

NamedState make_state(const StateSpec& spec) {
  return or_out_of_memory([&] { return NamedState(std::make_unique<NamedState::Impl>(spec)); });
}

StateSpec NamedState::spec() const try {
  StateSpec spec = impl_->spec;
  for (std::size_t i = 0; i < spec.tensors.size(); ++i)
    spec.tensors[i].shape = shape_at(impl_->named.tensors[i], impl_->memory.capacity());
  return spec;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

Pos NamedState::position() const { return impl_->memory.position(); }
std::int64_t NamedState::rows() const {
  return impl_->memory.spec().layers.empty() ? 0 : impl_->memory.rows();
}
std::int64_t NamedState::capacity() const {
  return impl_->memory.spec().layers.empty() ? 0 : impl_->memory.capacity();
}
std::int64_t NamedState::room() const { return impl_->memory.room(); }
std::optional<std::int64_t> NamedState::attention_size() const { return impl_->memory.attention_size(); }
std::int64_t NamedState::held_bytes() const { return impl_->memory.held_bytes(); }
std::int64_t NamedState::shared_bytes() const { return impl_->memory.shared_bytes(); }

std::int64_t NamedState::capacity_bytes() const {
  std::int64_t bytes = 0;
  for (const NamedTensor& tensor : impl_->named.tensors)
    if (tensor.spec.role != TensorRole::position) bytes += array_bytes(tensor, impl_->memory.capacity());
  return bytes;
}

TensorRead NamedState::read_tensor(std::string_view name, const ReadTensor& options) const try {
  const NamedTensor& tensor = impl_->find(name);
  const KvState& memory = impl_->memory;
  TensorRead result;
  if (!tensor.has_rows()) {
    if (options.type && *options.type != tensor.spec.type)
      refuse(cat("tensor ", quoted(tensor.spec.name),
                 " is read as it is: ", element_type_name(tensor.spec.type)));
    if (tensor.spec.role == TensorRole::position) {
      const auto position = static_cast<std::int32_t>(memory.position());
      result.bytes.resize(4);
      std::memcpy(result.bytes.data(), &position, 4);
    } else {
      const auto value = memory.recurrent().value(tensor.recurrent);
      result.bytes.assign(value.begin(), value.end());
    }
    return result;
  }
  if (options.type && *options.type != ElementType::f32 && *options.type != ElementType::f16 &&
      *options.type != tensor.spec.type)
    refuse(cat("tensor ", quoted(tensor.spec.name), " can be read as f32, f16 or ",
               element_type_name(tensor.spec.type)));
  const StateRows rows(memory);
  const ExactRows exact = exact_rows(rows.image(), tensor.layers, tensor.spec.window.has_value());
  if (!options.exact_only && exact.left_out > 0)
    refuse(cat("tensor ", quoted(tensor.spec.name), " cannot say it all: ", exact.why,
               "; with exact_only it holds the positions from ", exact.left_out, " on"));
  if (!options.exact_only && exact.moved > 0)
    refuse(cat("tensor ", quoted(tensor.spec.name), " cannot say it all: ", exact.moved,
               " rows were moved; with exact_only their keys are rotated to where they are seen"));
  LayoutArray array = impl_->array_of(tensor, exact.rows);
  // After positions were taken back, the oldest row of a window may be gone, which no query will see again:
  // its place stays, as zeros.
  if (tensor.spec.window && array.rows.first > 0 &&
      array.rows.first == exact.rows.last - *tensor.spec.window + 1)
    --array.rows.first;
  // Rows that a rollback may still need are more than the array of a window holds.
  array.rows.first = std::max(array.rows.first, array.rows.last - array.capacity);
  if (options.type) array.dtype = row_dtype(*options.type);
  std::int64_t elements = 1;
  for (const std::int64_t extent : array.shape) elements *= extent;
  result.bytes.resize(static_cast<std::size_t>(dtype_bytes(array.dtype, elements)));
  read_array(rows, array, result.bytes.data());
  result.rows = array.rows;
  result.left_out = exact.left_out;
  result.moved = exact.moved;
  return result;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::vector<TensorView> NamedState::views(std::string_view name) const try {
  const NamedTensor& tensor = impl_->find(name);
  if (!tensor.has_rows())
    refuse(cat("tensor ", quoted(tensor.spec.name), " has no rows to look at; read it"));
  const KvState& memory = impl_->memory;
  const StateImage image = memory.image();
  std::vector<TensorView> views;
  for (std::size_t b = 0; b < tensor.blocks.size(); ++b) {
    const int layer = tensor.blocks[b].layer;
    const KvPart part = tensor.blocks[b].part;
    const auto index = static_cast<std::size_t>(layer);
    const RowFormat format = row_format(image.spec, image.spec.layers[index]);
    for (const Segment& segment : image.segments)
      for (const LayerRows::Run& run : memory.layer_rows(layer).runs(segment.first, segment.last)) {
        const PosRange rows{run.first, run.last};
        TensorView view;
        view.block = static_cast<std::int64_t>(b);
        view.first = rows.first + segment.shift;
        view.kv_heads = format.kv_heads;
        view.rows = rows.size();
        const ConstRowSpan first = memory.rows_of_head(layer, 0, part, rows);
        view.row_stride = first.stride;
        view.data = first.data;
        if (format.kv_heads > 1)
          view.head_stride = memory.rows_of_head(layer, 1, part, rows).data - view.data;
        views.push_back(view);
      }
  }
  return views;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

void NamedState::write(std::span<const TensorBytes> tensors, Pos position) try {
  Impl& s = *impl_;
  if (position < 0) refuse(cat("a position of ", position, " is below 0"));
  if (s.memory.spec().rolling)
    refuse("a rolling state cannot be written as a whole: arrays do not hold its sinks");
  if (position > s.memory.capacity())
    refuse(cat(position, " positions do not fit a capacity of ", s.memory.capacity()));
  std::vector<const TensorBytes*> found(s.named.tensors.size(), nullptr);
  for (const TensorBytes& given : tensors) {
    const NamedTensor& tensor = s.find(given.name);
    const auto index = static_cast<std::size_t>(&tensor - s.named.tensors.data());
    if (tensor.spec.role == TensorRole::position)
      refuse(cat("tensor ", quoted(tensor.spec.name), " follows from the position and is not written"));
    if (found[index] != nullptr) refuse(cat("tensor ", quoted(tensor.spec.name), " is given twice"));
    const std::int64_t wanted = array_bytes(tensor, s.memory.capacity());
    if (static_cast<std::int64_t>(given.bytes.size()) != wanted)
      refuse(cat("tensor ", quoted(tensor.spec.name), " has ", wanted, " bytes; ", given.bytes.size(),
                 " were given"));
    found[index] = &given;
  }
  KvState fresh(s.image_at(position));
  for (std::size_t i = 0; i < found.size(); ++i) {
    const NamedTensor& tensor = s.named.tensors[i];
    if (tensor.spec.role == TensorRole::position) continue;
    if (found[i] == nullptr) refuse(cat("tensor ", quoted(tensor.spec.name), " is missing"));
    if (tensor.has_rows())
      write_array(fresh, s.array_of(tensor, s.rows_at(tensor, position)), found[i]->bytes.data(),
                  array_capacity(tensor, s.memory.capacity()));
    else
      fresh.recurrent().write(tensor.recurrent, found[i]->bytes);
  }
  s.memory = std::move(fresh);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

void NamedState::write_recurrent(std::string_view name, std::span<const std::byte> bytes) try {
  const NamedTensor& tensor = impl_->find(name);
  if (tensor.spec.role != TensorRole::recurrent)
    refuse(cat("tensor ", quoted(tensor.spec.name), " holds rows; append or write them"));
  impl_->memory.recurrent().write(tensor.recurrent, bytes);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

void NamedState::append(std::int64_t tokens, const std::function<void(const Row&)>& fill) try {
  KvState& memory = impl_->memory;
  const ElementwiseRow& kernels = best_kernels().elementwise;
  if (tokens > memory.spec().max_step && tokens <= memory.room()) memory.set_max_step(tokens);
  if (tokens >= 1 && tokens > memory.room())
    throw Error(ErrorCode::context_full, cat("the state is full: ", memory.rows(), " of ", memory.capacity(),
                                             " rows are used and ", tokens, " more do not fit"));
  KvState::Step step = memory.begin(tokens);
  std::vector<float> key, value;
  for (std::size_t layer = 0; layer < memory.spec().layers.size(); ++layer) {
    const LayerSpec& spec = memory.spec().layers[layer];
    const auto size = static_cast<std::size_t>(spec.head_dim);
    for (int head = 0; head < spec.kv_heads; ++head)
      for (std::int64_t t = 0; t < tokens; ++t) {
        key.assign(size, 0.0f);
        value.assign(size, 0.0f);
        if (fill) fill({static_cast<std::int64_t>(layer), head, t, key, value});
        step.write(kernels, static_cast<int>(layer), head, t, key.data(), value.data());
      }
  }
  step.commit();
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

TransitionPlan NamedState::plan(const Transition& transition) const {
  return or_out_of_memory([&] { return impl_->memory.plan(transition); });
}
TransitionRecord NamedState::apply(const Transition& transition) {
  return or_out_of_memory([&] { return impl_->memory.apply(transition); });
}

NamedState NamedState::fork() const try {
  return NamedState(std::make_unique<Impl>(*impl_, impl_->memory.fork()));
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

void NamedState::save(const std::string& path) const try {
  PosixFiles files;
  SnapshotExtras extras;
  extras.identity = impl_->identity();
  save_snapshot(files, path, impl_->memory, extras);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

void NamedState::load(const std::string& path) try {
  PosixFiles files;
  Snapshot snapshot = load_snapshot(files, path, impl_->identity());
  impl_->memory = std::move(snapshot.state);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
