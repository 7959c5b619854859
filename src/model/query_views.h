// query_views.h: the queries of a layer, rotated for every view point from which its spans are seen.
//
// Keys stay as they were rotated when written. So a span that is seen from elsewhere (kernels/span.h) is met by
// copies of the queries, rotated to that view point.
// Ownership: refers to the caller's rows and to the angles, which live as long as the step.
// Thread rules: copy() from different threads for different (token, head).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/attend_input.h"
#include "kernels/elementwise.h"
#include "model/rope_table.h"

namespace kvtide {

// The tokens of a step, and how a layer rotates them.
struct StepRotation {
  std::size_t rope;  // number of the table
  const RopeTable& table;
  Pos first;
  std::int64_t tokens;
};

// Angles of the queries of one step, by table and view point, each computed once.
class StepAngles {
 public:
  struct Angles {
    std::size_t rope;
    ViewPoint view;
    std::vector<float> cosine, sine;  // [tokens][pairs]
  };
  const Angles& of(const StepRotation& step, const ViewPoint& view);

 private:
  std::vector<std::unique_ptr<Angles>> made_;
};

class QueryViews {
 public:
  struct Rows {
    float* q;  // [tokens][heads * head_dim]
    int heads, head_dim;
  };
  QueryViews(StepAngles& angles, const StepRotation& step, std::span<const std::vector<Span>> spans,
             const Rows& plain);

  // Copies of the query of head `head` of token t for all views but the plain one, rotated. To be called before the
  // query itself is rotated.
  void copy(const ElementwiseRow& kernels, std::int64_t t, int head);
  // Leaves the first `tokens` tokens out.
  void skip(std::int64_t tokens);

  std::span<const ViewPoint> views() const { return views_; }       // the plain one first
  std::span<const float* const> rows() const { return of_views_; }  // per view [tokens][heads * head_dim]

 private:
  Rows plain_;
  std::int64_t tokens_, pairs_;
  std::vector<ViewPoint> views_;
  std::vector<const StepAngles::Angles*> angles_;  // of the views but the first
  std::vector<float> moved_;                       // [views but the first][tokens][heads * head_dim]
  std::vector<const float*> of_views_;
};

}  // namespace kvtide
