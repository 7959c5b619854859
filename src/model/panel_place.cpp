#include "model/panel_place.h"

#include <utility>

namespace kvtide {

std::byte* WriterPlace::room(std::size_t bytes) {
  full_ = std::move(filling_);
  Buffer& buffer = buffers_[turn_];
  turn_ = 1 - turn_;
  if (buffer.size() < bytes) buffer = Buffer(bytes, Buffer::Pages::large);
  filling_ = {std::exchange(announced_, {}), {buffer.data(), bytes}};
  return buffer.data();
}

void WriterPlace::meanwhile() {
  const Piece piece = std::exchange(full_, {});
  for (const PackedMatrix& matrix : piece.begun) writer_.begin(matrix);
  if (!piece.bytes.empty()) writer_.write(piece.bytes);
}

void WriterPlace::finish() {
  meanwhile();
  full_ = std::exchange(filling_, {});
  meanwhile();
  for (const PackedMatrix& matrix : announced_) writer_.begin(matrix);
  announced_.clear();
}

}  // namespace kvtide
