#include "coreml/run/tensor.h"

#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "coreml/program/data_type.h"

namespace kvtide::coreml {

std::int64_t elements_in(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

std::string text_of(const Shape& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += shape[i] == kUnknown ? "?" : std::to_string(shape[i]);
  }
  return text + "]";
}

bool runs(DataType type) {
  switch (type) {
    case DataType::boolean:
    case DataType::fp16:
    case DataType::fp32:
    case DataType::int8:
    case DataType::int16:
    case DataType::int32:
    case DataType::uint8:
    case DataType::uint16:
      return true;
    default:
      return false;
  }
}

std::size_t element_bytes(DataType type) {
  switch (type) {
    case DataType::fp32:
    case DataType::int32:
      return 4;
    case DataType::fp16:
    case DataType::int16:
    case DataType::uint16:
      return 2;
    default:
      return 1;
  }
}

std::size_t Tensor::bytes() const { return static_cast<std::size_t>(elements()) * element_bytes(dtype); }

Tensor Tensor::view(std::int64_t first, Shape other) const {
  std::byte* begin = data.get() + static_cast<std::size_t>(first) * element_bytes(dtype);
  return {dtype, std::move(other), std::shared_ptr<std::byte>(data, begin)};
}

// Pieces by size, in steps of an eighth, so that a sequence that grows by a token a call finds those of the last call.
struct TensorPool::Shelf {
  std::mutex mutex;
  std::unordered_map<std::size_t, std::vector<std::byte*>> free;
  std::int64_t held = 0;

  ~Shelf() {
    for (const auto& [size, pieces] : free)
      for (std::byte* piece : pieces) ::operator delete (piece, std::align_val_t{64});
  }
  std::byte* take(std::size_t size) {
    const std::lock_guard lock(mutex);
    auto& pieces = free[size];
    if (!pieces.empty()) {
      std::byte* piece = pieces.back();
      pieces.pop_back();
      return piece;
    }
    pieces.reserve(pieces.capacity() + 1);
    auto* piece = static_cast<std::byte*>(::operator new (size, std::align_val_t{64}));
    held += static_cast<std::int64_t>(size);
    return piece;
  }
  void give_back(std::byte* piece, std::size_t size) noexcept {
    const std::lock_guard lock(mutex);
    try {
      free[size].push_back(piece);
    } catch (const std::bad_alloc&) {
      ::operator delete (piece, std::align_val_t{64});
      held -= static_cast<std::int64_t>(size);
    }
  }
};

namespace {

std::size_t shelf_size(std::size_t bytes) {
  std::size_t step = 64;
  while (step * 16 < bytes) step *= 2;
  return (bytes + step) / step * step + 64;
}

}  // namespace

TensorPool::TensorPool() : shelf_(std::make_shared<Shelf>()) {}
TensorPool::~TensorPool() = default;

Tensor TensorPool::take(DataType dtype, Shape shape) {
  Tensor result{dtype, std::move(shape), nullptr};
  const std::size_t size = shelf_size(result.bytes());
  std::byte* piece = shelf_->take(size);
  result.data =
      std::shared_ptr<std::byte>(piece, [shelf = shelf_, size](std::byte* p) { shelf->give_back(p, size); });
  return result;
}

std::int64_t TensorPool::held_bytes() const {
  const std::lock_guard lock(shelf_->mutex);
  return shelf_->held;
}

Tensor zeroed_tensor(DataType dtype, Shape shape) {
  Tensor result{dtype, std::move(shape), nullptr};
  auto pages = std::make_shared<Buffer>(result.bytes() + 64);
  result.data = std::shared_ptr<std::byte>(pages, pages->data());
  return result;
}

}  // namespace kvtide::coreml
