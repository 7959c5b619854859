// journal.h: what states held before a call changed them, so that a call that fails has changed nothing.
//
// A part that is written in place is saved first: as many bytes as the write itself. A state that is replaced as a whole keeps its
// old bytes.
// Thread rules: of one call.
#pragma once

#include <vector>

#include "coreml/run/runtime.h"

namespace kvtide::coreml {

class Journal {
 public:
  // Elements of `tensor` at first + i0 steps[0] + ..; they are written next.
  void save_part(Runtime& run, const Tensor& tensor, std::int64_t first, const Shape& shape,
                 const Shape& steps);
  // `state` is going to be another tensor.
  void save_whole(Tensor& state);
  // Puts everything back, the newest first.
  void undo() noexcept;

 private:
  struct Entry {
    Tensor* state = nullptr;  // a whole one
    Tensor tensor, old;
    std::int64_t first = 0;
    Shape shape, steps;
  };
  std::vector<Entry> entries_;
};

}  // namespace kvtide::coreml
