#include "coreml/run/moves.h"

#include <cstring>

namespace kvtide::coreml {
namespace {

// Axes of size 1 left out, and neighbours joined that lie behind one another.
struct Layout {
  Shape shape, steps;
};

Layout joined(const Shape& shape, const Shape& steps) {
  Layout layout;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (!layout.shape.empty() && layout.steps.back() == steps[i] * shape[i]) {
      layout.shape.back() *= shape[i];
      layout.steps.back() = steps[i];
    } else {
      layout.shape.push_back(shape[i]);
      layout.steps.push_back(steps[i]);
    }
  }
  if (layout.shape.empty()) layout = {{1}, {1}};
  return layout;
}

// body(place in the dense tensor, place in the other one) for every row along the last axis.
template <class Body>
void for_rows(Runtime& run, const Layout& layout, const Body& body) {
  const std::int64_t width = layout.shape.back();
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < layout.shape.size(); ++i) rows *= layout.shape[i];
  if (rows == 0 || width == 0) return;
  in_pieces(run, rows, std::max<std::int64_t>(1, 65536 / width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      std::int64_t rest = row, at = 0;
      for (std::size_t axis = layout.shape.size() - 1; axis-- > 0;) {
        at += rest % layout.shape[axis] * layout.steps[axis];
        rest /= layout.shape[axis];
      }
      body(row * width, at);
    }
  });
}

template <class Element>
void gather_elements(Runtime& run, const Element* from, const Layout& layout, Element* to) {
  const std::int64_t width = layout.shape.back(), step = layout.steps.back();
  for_rows(run, layout, [&](std::int64_t dense, std::int64_t at) {
    if (step == 1)
      std::memcpy(to + dense, from + at, static_cast<std::size_t>(width) * sizeof(Element));
    else
      for (std::int64_t i = 0; i < width; ++i) to[dense + i] = from[at + i * step];
  });
}

template <class Element>
void scatter_elements(Runtime& run, const Element* from, const Layout& layout, Element* to) {
  const std::int64_t width = layout.shape.back(), step = layout.steps.back();
  for_rows(run, layout, [&](std::int64_t dense, std::int64_t at) {
    if (step == 1)
      std::memcpy(to + at, from + dense, static_cast<std::size_t>(width) * sizeof(Element));
    else
      for (std::int64_t i = 0; i < width; ++i) to[at + i * step] = from[dense + i];
  });
}

}  // namespace

Shape steps_of(const Shape& shape) {
  Shape steps(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) steps[i - 1] = steps[i] * shape[i];
  return steps;
}

void copy_strided(Runtime& run, const Tensor& from, std::int64_t first, const Shape& shape,
                  const Shape& steps, const Tensor& to) {
  const Layout layout = joined(shape, steps);
  switch (element_bytes(from.dtype)) {
    case 4:
      return gather_elements(run, from.as<const std::uint32_t>() + first, layout, to.as<std::uint32_t>());
    case 2:
      return gather_elements(run, from.as<const std::uint16_t>() + first, layout, to.as<std::uint16_t>());
    default:
      return gather_elements(run, from.as<const std::uint8_t>() + first, layout, to.as<std::uint8_t>());
  }
}

void scatter_strided(Runtime& run, const Tensor& from, const Shape& shape, const Shape& steps,
                     const Tensor& to, std::int64_t first) {
  const Layout layout = joined(shape, steps);
  switch (element_bytes(from.dtype)) {
    case 4:
      return scatter_elements(run, from.as<const std::uint32_t>(), layout, to.as<std::uint32_t>() + first);
    case 2:
      return scatter_elements(run, from.as<const std::uint16_t>(), layout, to.as<std::uint16_t>() + first);
    default:
      return scatter_elements(run, from.as<const std::uint8_t>(), layout, to.as<std::uint8_t>() + first);
  }
}

}  // namespace kvtide::coreml
