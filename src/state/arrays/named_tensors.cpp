#include "state/arrays/named_tensors.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "kvtide/error.h"
#include "tensor/element_type.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMostExtent = std::int64_t{1} << 31;
// Tokens that a state without a tensor that keeps everything can read; it costs address space.
constexpr std::int64_t kEndless = std::int64_t{1} << 22;

// Four bits are kept as transforms, which no other runtime reads.
bool rows_have(ElementType type) {
  return type == ElementType::f32 || type == ElementType::f16 || type == ElementType::q8_0;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape) text += cat(text.empty() ? "" : ", ", extent);
  return cat("[", text, "]");
}

class Resolver {
 public:
  explicit Resolver(const StateSpec& spec) : spec_(spec) {}

  NamedTensors resolve() {
    if (spec_.tensors.empty()) throw Error(ErrorCode::invalid_argument, "a state needs at least one tensor");
    std::set<std::string> names;
    for (const TensorSpec& tensor : spec_.tensors) {
      if (tensor.name.empty()) refuse(tensor, "needs a name");
      if (!names.insert(tensor.name).second) refuse(tensor, "is there twice");
      add(tensor);
    }
    pair_values();
    KvSpec& memory = result_.memory;
    memory.capacity = capacity_.value_or(kEndless);
    for (const NamedTensor& tensor : result_.tensors) check_rows(tensor);
    memory.slack = spec_.slack;
    memory.rolling = spec_.rolling;
    memory.rotary = !spec_.frequencies.empty();
    for (LayerSpec& layer : memory.layers) layer.frequencies = spec_.frequencies;
    check(memory);
    return std::move(result_);
  }

 private:
  [[noreturn]] static void refuse(const TensorSpec& tensor, const std::string& why) {
    throw Error(ErrorCode::invalid_argument, cat("tensor ", quoted(tensor.name), " ", why));
  }

  void add(const TensorSpec& tensor) {
    NamedTensor named{tensor, {}, {}, 0, 0};
    switch (tensor.role) {
      case TensorRole::position:
        if (tensor.type != ElementType::i32 || tensor.shape != std::vector<std::int64_t>{1})
          refuse(tensor, "holds the position and must be i32 [1]");
        break;
      case TensorRole::recurrent:
        if (!rows_have(tensor.type)) refuse(tensor, "must be f32 or f16");
        named.recurrent = result_.memory.recurrent.size();
        result_.memory.recurrent.push_back({tensor.name, row_dtype(tensor.type), tensor.shape});
        break;
      case TensorRole::keys_and_values:
        add_rows(named, tensor.shape.size() == 4 && tensor.shape[0] % 2 == 0 ? tensor.shape[0] / 2 : 0,
                 "[2 * layers, kv_heads, capacity, head_dim]");
        break;
      case TensorRole::keys:
        add_rows(named, layers_of(tensor), kOne);
        break;
      case TensorRole::values:  // the layers are those of the keys (pair_values)
        if (layers_of(tensor) == 0) refuse_shape(tensor, kOne);
        named.sequence_axis = tensor.shape.size() - 2;
        break;
    }
    result_.tensors.push_back(std::move(named));
  }

  static constexpr const char* kOne =
      "[1, kv_heads, capacity, head_dim] or [layers, 1, kv_heads, capacity, head_dim]";

  [[noreturn]] static void refuse_shape(const TensorSpec& tensor, const char* wanted) {
    refuse(tensor, cat("must be ", wanted, ", not ", shape_text(tensor.shape)));
  }

  // Layers of a tensor of keys, or of values; 0: its shape is neither of the two.
  static std::int64_t layers_of(const TensorSpec& tensor) {
    const auto& shape = tensor.shape;
    if (shape.size() == 4 && shape[0] == 1) return 1;
    return shape.size() == 5 && shape[1] == 1 ? std::max<std::int64_t>(shape[0], 0) : 0;
  }

  void add_rows(NamedTensor& named, std::int64_t layers, const char* wanted) {
    const TensorSpec& tensor = named.spec;
    if (layers < 1 || layers > 65536) refuse_shape(tensor, wanted);
    const std::size_t n = tensor.shape.size();
    named.sequence_axis = n - 2;
    for (const std::size_t axis : {n - 3, n - 2, n - 1})
      if (tensor.shape[axis] < 1 || tensor.shape[axis] > kMostExtent) refuse_shape(tensor, wanted);
    if (tensor.shape[n - 3] > 65536 || tensor.shape[n - 1] > 65536) refuse_shape(tensor, wanted);
    if (!rows_have(tensor.type)) refuse(tensor, "must be f32, f16 or q8_0");
    KvSpec& memory = result_.memory;
    for (std::int64_t i = 0; i < layers; ++i) {
      named.layers.push_back(static_cast<int>(memory.layers.size()));
      memory.layers.push_back(
          {static_cast<int>(tensor.shape[n - 3]), static_cast<int>(tensor.shape[n - 1]), tensor.window});
    }
    for (const int layer : named.layers) named.blocks.push_back({layer, KvPart::keys});
    set_type(tensor, memory.key_type, has_keys_);
    if (tensor.role == TensorRole::keys) return;
    for (const int layer : named.layers) named.blocks.push_back({layer, KvPart::values});
    set_type(tensor, memory.value_type, has_values_);
  }

  void set_type(const TensorSpec& tensor, DType& type, bool& known) {
    const DType own = row_dtype(tensor.type);
    if (known && own != type)
      refuse(tensor,
             cat("is ", dtype_info(own).name, ", and the tensors before it are ", dtype_info(type).name));
    type = own;
    known = true;
  }

  void pair_values() {
    std::vector<const NamedTensor*> keys;
    for (const NamedTensor& tensor : result_.tensors)
      if (tensor.spec.role == TensorRole::keys) keys.push_back(&tensor);
    std::size_t next = 0;
    for (NamedTensor& tensor : result_.tensors) {
      if (tensor.spec.role != TensorRole::values) continue;
      if (next == keys.size()) refuse(tensor.spec, "has no tensor of keys that belongs to it");
      const NamedTensor& own = *keys[next++];
      if (tensor.spec.shape != own.spec.shape || tensor.spec.window != own.spec.window)
        refuse(tensor.spec, cat("is ", shape_text(tensor.spec.shape), ", and its keys ",
                                quoted(own.spec.name), " are ", shape_text(own.spec.shape)));
      if (!rows_have(tensor.spec.type)) refuse(tensor.spec, "must be f32, f16 or q8_0");
      tensor.layers = own.layers;
      for (const int layer : tensor.layers) tensor.blocks.push_back({layer, KvPart::values});
      set_type(tensor.spec, result_.memory.value_type, has_values_);
    }
    if (next < keys.size()) refuse(keys[next]->spec, "has no tensor of values that belongs to it");
    for (const NamedTensor& tensor : result_.tensors)
      if (tensor.has_rows() && !tensor.spec.window && !capacity_)
        capacity_ = tensor.spec.shape[tensor.sequence_axis];
  }

  // Tensors share one capacity; one of a window holds no more than that.
  void check_rows(const NamedTensor& tensor) const {
    if (!tensor.has_rows()) return;
    const std::int64_t rows = tensor.spec.shape[tensor.sequence_axis];
    const std::int64_t wanted = array_capacity(tensor, result_.memory.capacity);
    if (rows != wanted)
      refuse(tensor.spec, cat("has room for ", rows, " rows, where the others and its window say ", wanted));
  }

  const StateSpec& spec_;
  NamedTensors result_;
  std::optional<std::int64_t> capacity_;
  bool has_keys_ = false, has_values_ = false;
};

}  // namespace

NamedTensors resolve(const StateSpec& spec) { return Resolver(spec).resolve(); }

std::int64_t array_capacity(const NamedTensor& tensor, std::int64_t capacity) {
  return tensor.spec.window ? std::min(capacity, *tensor.spec.window) : capacity;
}

std::vector<std::int64_t> shape_at(const NamedTensor& tensor, std::int64_t capacity) {
  std::vector<std::int64_t> shape = tensor.spec.shape;
  if (tensor.has_rows()) shape[tensor.sequence_axis] = array_capacity(tensor, capacity);
  return shape;
}

std::int64_t array_bytes(const NamedTensor& tensor, std::int64_t capacity) {
  if (tensor.spec.role == TensorRole::position) return 4;
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape_at(tensor, capacity)) elements *= extent;
  return dtype_bytes(row_dtype(tensor.spec.type), elements);
}

std::string signature(const NamedTensors& tensors) {
  std::string text;
  for (const NamedTensor& tensor : tensors.tensors) {
    text += cat(text.empty() ? "" : "; ", tensor.spec.name, " ", element_type_name(tensor.spec.type), " [");
    for (std::size_t axis = 0; axis < tensor.spec.shape.size(); ++axis) {
      const bool sequence = tensor.has_rows() && axis == tensor.sequence_axis;
      text += cat(axis == 0 ? "" : ", ", sequence ? std::string("*") : cat(tensor.spec.shape[axis]));
    }
    text += "]";
  }
  return text;
}

}  // namespace kvtide
