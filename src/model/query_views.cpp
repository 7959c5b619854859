#include "model/query_views.h"

#include <cstring>

namespace kvtide {

const StepAngles::Angles& StepAngles::of(const StepRotation& step, const ViewPoint& view) {
  for (const auto& known : made_)
    if (known->rope == step.rope && known->view == view) return *known;
  auto made = std::make_unique<Angles>();
  made->rope = step.rope;
  made->view = view;
  const std::int64_t pairs = step.table.pairs();
  made->cosine.resize(static_cast<std::size_t>(step.tokens * pairs));
  made->sine.resize(made->cosine.size());
  for (std::int64_t t = 0; t < step.tokens; ++t)
    step.table.fill(view.seen_from(step.first + t), 1, made->cosine.data() + t * pairs,
                    made->sine.data() + t * pairs);
  made_.push_back(std::move(made));
  return *made_.back();
}

QueryViews::QueryViews(StepAngles& angles, const StepRotation& step, std::span<const std::vector<Span>> spans,
                       const Rows& plain)
    : plain_(plain), tokens_(step.tokens), pairs_(step.table.pairs()), views_(view_points(spans)) {
  const auto floats = static_cast<std::size_t>(tokens_ * plain.heads * plain.head_dim);
  moved_.resize((views_.size() - 1) * floats);
  of_views_.push_back(plain.q);
  for (std::size_t other = 0; other + 1 < views_.size(); ++other) {
    angles_.push_back(&angles.of(step, views_[other + 1]));
    of_views_.push_back(moved_.data() + other * floats);
  }
}

void QueryViews::copy(const ElementwiseRow& kernels, std::int64_t t, int head) {
  const std::int64_t dim = plain_.head_dim, row = (t * plain_.heads + head) * dim;
  for (std::size_t other = 0; other < angles_.size(); ++other) {
    const StepAngles::Angles& a = *angles_[other];
    float* moved = moved_.data() + static_cast<std::int64_t>(other) * tokens_ * plain_.heads * dim + row;
    std::memcpy(moved, plain_.q + row, static_cast<std::size_t>(dim) * sizeof(float));
    kernels.rope(moved, a.cosine.data() + t * pairs_, a.sine.data() + t * pairs_, pairs_);
  }
}

void QueryViews::skip(std::int64_t tokens) {
  for (const float*& rows : of_views_) rows += tokens * plain_.heads * plain_.head_dim;
}

}  // namespace kvtide
