#include "coreml/run/journal.h"

#include <cstring>

#include "coreml/program/data_type.h"
#include "coreml/run/moves.h"

namespace kvtide::coreml {
namespace journal_details {

// Element by element, without memory of its own: a call that failed for the lack of memory has to get back, too.
void put_back(const Tensor& old, const Shape& shape, const Shape& steps, const Tensor& tensor,
              std::int64_t first) noexcept {
  const std::size_t size = element_bytes(old.dtype);
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, at = first;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      at += rest % shape[axis] * steps[axis];
      rest /= shape[axis];
    }
    std::memcpy(tensor.data.get() + static_cast<std::size_t>(at) * size,
                old.data.get() + static_cast<std::size_t>(i) * size, size);
  }
}

}  // namespace journal_details

void Journal::save_part(Runtime& run, const Tensor& tensor, std::int64_t first, const Shape& shape,
                        const Shape& steps) {
  Entry entry;
  entry.tensor = tensor;
  entry.old = run.tensors.take(tensor.dtype, shape);
  entry.first = first;
  entry.shape = shape;
  entry.steps = steps;
  copy_strided(run, tensor, first, shape, steps, entry.old);
  // The entry must not count as an owner: in-place writes go on behind it.
  entry.tensor.data = std::shared_ptr<std::byte>(std::shared_ptr<void>(), tensor.data.get());
  entries_.push_back(std::move(entry));
}

void Journal::save_whole(Tensor& state) {
  Entry entry;
  entry.state = &state;
  entry.old = state;
  entries_.push_back(std::move(entry));
}

void Journal::undo() noexcept {
  for (; !entries_.empty(); entries_.pop_back()) {
    Entry& entry = entries_.back();
    if (entry.state != nullptr)
      *entry.state = std::move(entry.old);
    else
      journal_details::put_back(entry.old, entry.shape, entry.steps, entry.tensor, entry.first);
  }
}

}  // namespace kvtide::coreml
