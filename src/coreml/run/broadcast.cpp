#include "coreml/run/broadcast.h"

namespace kvtide::coreml {

std::optional<Shape> broadcast_shape(std::span<const Shape* const> shapes) {
  std::size_t rank = 0;
  for (const Shape* shape : shapes) rank = std::max(rank, shape->size());
  Shape result(rank, 1);
  for (const Shape* shape : shapes) {
    const std::size_t skipped = rank - shape->size();
    for (std::size_t i = 0; i < shape->size(); ++i) {
      std::int64_t& size = result[skipped + i];
      if ((*shape)[i] == 1 || (*shape)[i] == size) continue;
      if (size != 1) return std::nullopt;
      size = (*shape)[i];
    }
  }
  return result;
}

BroadcastWalk::BroadcastWalk(const Shape& shape, std::span<const Shape* const> shapes) {
  std::vector<Shape> steps;  // of all axes
  for (const Shape* each : shapes) {
    Shape own(shape.size(), 0);
    std::int64_t step = 1;
    for (std::size_t i = each->size(); i-- > 0;) {
      own[shape.size() - each->size() + i] = (*each)[i] == 1 ? 0 : step;
      step *= (*each)[i];
    }
    steps.push_back(std::move(own));
  }
  steps_.resize(shapes.size());
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1) continue;
    bool joins = !sizes_.empty();
    for (std::size_t t = 0; t < steps.size() && joins; ++t)
      joins = steps_[t].back() == steps[t][axis] * shape[axis];
    if (joins) {
      sizes_.back() *= shape[axis];
      for (std::size_t t = 0; t < steps.size(); ++t) steps_[t].back() = steps[t][axis];
    } else {
      sizes_.push_back(shape[axis]);
      for (std::size_t t = 0; t < steps.size(); ++t) steps_[t].push_back(steps[t][axis]);
    }
  }
  if (sizes_.empty()) {
    sizes_.push_back(1);
    for (Shape& own : steps_) own.push_back(0);
  }
  width_ = sizes_.back();
  for (std::size_t i = 0; i + 1 < sizes_.size(); ++i) rows_ *= sizes_[i];
}

}  // namespace kvtide::coreml
