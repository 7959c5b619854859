// arrays.h: numbers of ours as a NumPy array that owns them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <vector>

namespace kvtide::python {

template <class T>
nanobind::object array_of(std::unique_ptr<std::vector<T>> values) {
  std::vector<T>& kept = *values;
  const nanobind::capsule owner(values.get(),
                                [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  static_cast<void>(values.release());
  return nanobind::cast(
      nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>(kept.data(), {kept.size()}, owner));
}

}  // namespace kvtide::python
