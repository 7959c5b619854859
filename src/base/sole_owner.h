// sole_owner.h: whether a shared object may be written in place, because nobody else holds it any more.
#pragma once

#include <memory>

namespace kvtide {

// use_count() == 1 tells that the others have let go, but waits for nothing that they did before: their last
// reads could still meet our first write. Letting go of a second reference does wait for them. The caller
// must be the only one who can copy `pointer`.
template <class T>
bool sole_owner(const std::shared_ptr<T>& pointer) {
  if (pointer.use_count() != 1) return false;
  std::shared_ptr<T>(pointer).reset();
  return true;
}

}  // namespace kvtide
