#include "state/spec/procedural_spec.h"

#include <algorithm>
#include <cmath>

namespace kvtide {
namespace {

constexpr double kLeast = 0.2, kMost = 3.0;  // of the mean

// Numbers proportional to `need` within [least, most] that add up to `total`, as far as the bounds allow.
std::vector<double> share_out(const std::vector<double>& need, double total, double least, double most) {
  double low = 0.0, high = 1.0;
  const auto sum_at = [&](double factor) {
    double sum = 0.0;
    for (const double n : need) sum += std::clamp(factor * n, least, most);
    return sum;
  };
  while (sum_at(high) < total && high < 1e30) high *= 2.0;
  for (int step = 0; step < 100; ++step) {
    const double middle = 0.5 * (low + high);
    (sum_at(middle) < total ? low : high) = middle;
  }
  std::vector<double> shares;
  for (const double n : need) shares.push_back(std::clamp(high * n, least, most));
  return shares;
}

// Of the newest six blocks, or of window and block where these are shorter.
constexpr std::int64_t kReferenceTokens = kBlockReferences + kWindowReferences, kReferenceBlocks = 6;
constexpr std::size_t kManyQueries = 3;

std::int64_t reference_tokens(const ProceduralSpec& spec) {
  std::size_t kv_heads = 0;
  for (const auto& layer : spec.plans) kv_heads = std::max(kv_heads, layer.size());
  const bool many = static_cast<std::size_t>(spec.query_heads) >= kManyQueries * kv_heads;
  return many ? kReferenceTokens / 2 : kReferenceTokens;
}

}  // namespace

void place_references(ProceduralSpec& spec) {
  const std::int64_t all = spec.window + spec.block, newest = std::min(all, kReferenceBlocks * spec.block);
  spec.reference_stride = std::clamp<std::int64_t>(newest / reference_tokens(spec), 1, spec.block);
  spec.reference_span = newest < all ? newest : 0;
  spec.reference_from = spec.stages.empty() ? 0 : std::max<Pos>(0, spec.stages.back().until - newest);
}

std::size_t turns_like(const ProceduralSpec& spec, std::size_t layer) {
  for (std::size_t other = 0; other < layer; ++other)
    if (!spec.plans[other].empty() && spec.frequencies[other] == spec.frequencies[layer]) return other;
  return layer;
}

std::int64_t pinned_within(const ProceduralSpec& spec, Pos first, Pos last) {
  std::int64_t count = 0;
  for (const PosRange& pin : spec.pins)
    count += std::max<Pos>(0, std::min(pin.last, last) - std::max(pin.first, first));
  return count;
}

std::vector<PosRange> with_pin(std::vector<PosRange> pins, const PosRange& range) {
  pins.push_back(range);
  std::sort(pins.begin(), pins.end(), [](const PosRange& a, const PosRange& b) { return a.first < b.first; });
  std::vector<PosRange> apart;
  for (const PosRange& pin : pins)
    if (!apart.empty() && pin.first <= apart.back().last)
      apart.back().last = std::max(apart.back().last, pin.last);
    else
      apart.push_back(pin);
  return apart;
}

std::vector<std::vector<HeadPlan>> plan_heads(const ProceduralOptions& o,
                                              const std::vector<bool>& compressed_layers, int kv_heads) {
  std::vector<std::vector<HeadPlan>> plans(compressed_layers.size());
  std::vector<HeadPlan*> sharing;
  std::vector<double> need;
  std::int64_t heads = 0, full = 0;
  const float copies_from = ProceduralOptions{}.full_from;
  for (std::size_t layer = 0; layer < plans.size(); ++layer) {
    if (!compressed_layers[layer]) continue;
    plans[layer].resize(static_cast<std::size_t>(kv_heads));
    for (std::size_t h = 0; h < plans[layer].size(); ++h) {
      HeadPlan& plan = plans[layer][h];
      const HeadNeed known =
          o.heads.needs.empty() ? HeadNeed{} : o.heads.needs[layer * static_cast<std::size_t>(kv_heads) + h];
      plan.weight = known.output_norm;
      const int last = o.last_layer < 0 ? static_cast<int>(plans.size()) - 1 : o.last_layer;
      if (static_cast<int>(layer) < o.first_layer || static_cast<int>(layer) > last) {
        plan.full = plan.whole = true;
        continue;
      }
      plan.full = known.copies() >= o.full_from;
      plan.whole = plan.full && !o.spill.empty();
      ++heads;
      full += plan.full && known.copies() >= copies_from;
      if (plan.full) continue;
      sharing.push_back(&plan);
      need.push_back(std::max(1e-6, static_cast<double>(known.share)));
    }
  }
  if (sharing.empty()) return plans;
  // What copying heads take beyond their share is missing elsewhere. Where they are most of the heads there
  // is no such share: the others keep `rows` each. So they do beside heads that a budget has room for.
  const double count = static_cast<double>(sharing.size());
  const std::int64_t left = 2 * full > heads
                                ? (o.rows - o.summaries) * static_cast<std::int64_t>(sharing.size())
                                : (o.rows - o.summaries) * heads - full * (o.block - o.summaries);
  const double outliers = std::max(count, static_cast<double>(left));
  const double mean = outliers / count;
  const auto shares = share_out(need, outliers, kLeast * mean, kMost * mean);
  for (std::size_t i = 0; i < sharing.size(); ++i)
    sharing[i]->rows =
        std::min(o.block - 1, o.summaries + std::max<std::int64_t>(1, std::llround(shares[i])));
  return plans;
}

std::int64_t rows_of_plans(const ProceduralSpec& spec) {
  std::int64_t rows = 0, heads = 0, full = 0;
  for (const auto& layer : spec.plans)
    for (const HeadPlan& plan : layer) {
      rows += plan.full ? 0 : plan.rows;
      full += plan.full;
      ++heads;
    }
  if (2 * full > heads)
    heads -= full;
  else
    rows += full * spec.block;
  return heads == 0 ? 0 : (rows + heads / 2) / heads;
}

bool keeps_the_same(const ProceduralSpec& a, const ProceduralSpec& b) {
  ProceduralSpec like = a;
  like.budget = b.budget;
  like.budget_for = b.budget_for;
  // What plans, stages and element types say.
  like.exact_first = b.exact_first;
  like.heads = b.heads;
  like.rows = b.rows;
  like.full_from = b.full_from;
  like.first_layer = b.first_layer;
  like.last_layer = b.last_layer;
  like.full_type = b.full_type;
  like.row_type = b.row_type;
  return like == b;
}

}  // namespace kvtide
