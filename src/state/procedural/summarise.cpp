#include "state/procedural/summarise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "state/procedural/fit.h"
#include "state/procedural/head_rows.h"

namespace kvtide {
namespace {

constexpr float kNoMass = -std::numeric_limits<float>::infinity();

// Moves the pinned rows of an order to its front.
void pinned_first(std::vector<std::int64_t>& order, const std::vector<bool>& pinned) {
  std::stable_partition(order.begin(), order.end(),
                        [&](std::int64_t j) { return pinned[static_cast<std::size_t>(j)]; });
}

}  // namespace

void Summariser::attend(const BlockRows& b, const ReferenceRows& r, float scale) {
  count_ = r.count;
  stride_ = b.padded_rows;
  const auto cells = static_cast<std::size_t>(count_ * stride_);
  scores_.resize(cells);
  // Queries x transposed keys: rows of scores come out side by side, which needs no sums across a vector.
  turned_.resize(static_cast<std::size_t>(b.padded_dim * stride_));
  transpose(b.keys.data(), stride_, b.padded_dim, scale, turned_.data());
  kernels_.mix(r.queries.data(), count_, b.padded_dim, turned_.data(), stride_, scores_.data());
  const bool biased = std::any_of(b.bias.begin(), b.bias.end(), [](float bias) { return bias != 0.0f; });
  if (biased || b.rows < stride_)
    for (std::int64_t i = 0; i < count_; ++i) {
      float* row = scores_.data() + i * stride_;
      for (std::int64_t j = 0; biased && j < b.rows; ++j) row[j] += b.bias[static_cast<std::size_t>(j)];
      for (std::int64_t j = b.rows; j < stride_; ++j) row[j] = kNoMass;
    }
  shares_ = scores_;
  log_mass_.resize(static_cast<std::size_t>(count_));
  weight_.resize(static_cast<std::size_t>(count_));
  squares_.assign(static_cast<std::size_t>(stride_), 0.0f);
  for (std::int64_t i = 0; i < count_; ++i) {
    float* row = shares_.data() + i * stride_;
    const float own = kernels_.soften(row, stride_);
    log_mass_[static_cast<std::size_t>(i)] = own;
    float* score = scores_.data() + i * stride_;
    for (std::int64_t j = 0; j < stride_; ++j) score[j] -= own;
    const float w = 1.0f / (1.0f + std::exp(r.log_mass[static_cast<std::size_t>(i)] - own));
    weight_[static_cast<std::size_t>(i)] = w;
    kernels_.add_squares(row, w, stride_, squares_.data());
  }
}

void Summariser::mix_outputs(const BlockRows& b) {
  outputs_.resize(static_cast<std::size_t>(count_ * b.padded_dim));
  kernels_.mix(shares_.data(), count_, stride_, b.values.data(), b.padded_dim, outputs_.data());
}

std::vector<std::int64_t> Summariser::rank_rows(const BlockRows& b, const SummaryRules& rules,
                                                std::size_t first) const {
  const std::vector<float> attention(squares_.begin(), squares_.begin() + b.rows);
  const RowScore score = rules.score;
  if (!rules.repeated.empty()) return order_of({rules.repeated.begin(), rules.repeated.end()}, first);
  if (score == RowScore::attention) return order_of(attention, first);
  if (score == RowScore::novelty) return order_of(novelty(b), first);
  if (score == RowScore::value_norm) return order_of(value_norms(b), first);
  // The three rankings take turns: novelty, attention, size of the value. The first `first` of all are among
  // the first of each.
  const std::vector<std::int64_t> rankings[] = {order_of(novelty(b), first), order_of(attention, first),
                                                order_of(value_norms(b), first)};
  std::vector<std::int64_t> order;
  std::vector<bool> taken(static_cast<std::size_t>(b.rows), false);
  for (std::size_t rank = 0; rank < taken.size() && order.size() < first; ++rank)
    for (const auto& ranking : rankings)
      if (const std::int64_t row = ranking[rank];
          order.size() < first && !taken[static_cast<std::size_t>(row)]) {
        taken[static_cast<std::size_t>(row)] = true;
        order.push_back(row);
      }
  for (std::int64_t row = 0; row < b.rows; ++row)
    if (!taken[static_cast<std::size_t>(row)]) order.push_back(row);
  return order;
}

std::vector<std::int64_t> Summariser::choose_pivots(const BlockRows& b, const std::vector<std::int64_t>& rest,
                                                    const SummaryRules& rules) const {
  const auto size = static_cast<std::int64_t>(rest.size());
  const std::int64_t count = std::min(rules.summaries, size);
  std::vector<std::int64_t> pivots;
  if (count == 0) return pivots;
  if (rules.summary == Summary::positional) {
    for (std::int64_t i = 0; i < count; ++i)
      pivots.push_back(rest[static_cast<std::size_t>((2 * i + 1) * size / (2 * count))]);
  } else if (rules.summary == Summary::cluster) {
    // Farthest point first: each next pivot is the row least like those there are.
    std::vector<float> likeness(rest.size(), kNoMass);
    std::int64_t next = size / 2;
    while (static_cast<std::int64_t>(pivots.size()) < count) {
      pivots.push_back(rest[static_cast<std::size_t>(next)]);
      for (std::size_t i = 0; i < rest.size(); ++i)
        likeness[i] =
            rest[i] == pivots.back() ? 9.0f : std::max(likeness[i], cosine(b, rest[i], pivots.back()));
      next = std::min_element(likeness.begin(), likeness.end()) - likeness.begin();
    }
  } else {
    std::vector<float> attention;
    for (const std::int64_t j : rest) attention.push_back(squares_[static_cast<std::size_t>(j)]);
    const auto order = order_of(attention, static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      pivots.push_back(rest[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])]);
  }
  std::sort(pivots.begin(), pivots.end());
  return pivots;
}

// How far the scores of every row are from those of each pivot: [pivots][padded_rows], the sum over references of weight
// times their squared difference, but for what is the same for all pivots.
std::vector<float> Summariser::distances(const std::vector<std::int64_t>& pivots) const {
  const std::size_t references = static_cast<std::size_t>(count_), stride = static_cast<std::size_t>(stride_);
  std::vector<float> weighted(pivots.size() * references), squares(pivots.size()),
      far(pivots.size() * stride);
  for (std::size_t p = 0; p < pivots.size(); ++p)
    for (std::size_t i = 0; i < references; ++i) {
      const float score = scores_[i * stride + static_cast<std::size_t>(pivots[p])];
      weighted[p * references + i] = weight_[i] * score;
      squares[p] += weight_[i] * score * score;
    }
  kernels_.mix(weighted.data(), std::ssize(pivots), count_, scores_.data(), stride_, far.data());
  for (std::size_t p = 0; p < pivots.size(); ++p)
    for (std::size_t j = 0; j < stride; ++j) far[p * stride + j] = squares[p] - 2.0f * far[p * stride + j];
  return far;
}

// For every row of `rest` the index of its pivot.
std::vector<std::int64_t> Summariser::assign(const BlockRows& b, const std::vector<std::int64_t>& rest,
                                             const std::vector<std::int64_t>& pivots,
                                             const SummaryRules& rules) const {
  std::vector<std::int64_t> to(rest.size(), 0);
  std::vector<float> best(rest.size(), std::numeric_limits<float>::infinity()), far;
  if (rules.summary == Summary::fit) far = distances(pivots);
  for (std::size_t p = 0; p < pivots.size(); ++p)
    for (std::size_t i = 0; i < rest.size(); ++i) {
      float d = 0.0f;
      if (rest[i] == pivots[p])
        d = kNoMass;
      else if (rules.summary == Summary::fit)
        d = far[p * static_cast<std::size_t>(stride_) + static_cast<std::size_t>(rest[i])];
      else if (rules.summary == Summary::cluster)
        d = 1.0f - cosine(b, rest[i], pivots[p]);
      else
        d = static_cast<float>(std::abs(rest[i] - pivots[p]));
      if (d < best[i]) {
        best[i] = d;
        to[i] = static_cast<std::int64_t>(p);
      }
    }
  return to;
}

// sqrt(mean over references of (weight x share x distance of the row's value from the output)^2).
std::vector<float> Summariser::losses_of(const BlockRows& b, const std::vector<std::int64_t>& rows) const {
  const std::size_t padded = (rows.size() + 15) / 16 * 16, count = static_cast<std::size_t>(count_);
  const auto dim = static_cast<std::size_t>(b.padded_dim);
  std::vector<float> turned(dim * padded, 0.0f), squares(padded, 0.0f), share(padded, 0.0f),
      sum(padded, 0.0f);
  for (std::size_t j = 0; j < rows.size(); ++j) {
    const float* value = b.values.data() + rows[j] * b.padded_dim;
    for (std::size_t d = 0; d < dim; ++d) turned[d * padded + j] = value[d];
    squares[j] = dot(value, value, b.padded_dim);
  }
  std::vector<float> products(count * padded);
  kernels_.mix(outputs_.data(), count_, b.padded_dim, turned.data(), static_cast<std::int64_t>(padded),
               products.data());
  for (std::size_t i = 0; i < count; ++i) {
    const float* from = shares_.data() + static_cast<std::int64_t>(i) * stride_;
    for (std::size_t j = 0; j < rows.size(); ++j) share[j] = from[rows[j]];
    const float* out = outputs_.data() + i * dim;
    kernels_.add_losses(share.data(), weight_[i], squares.data(), dot(out, out, b.padded_dim),
                        products.data() + i * padded, static_cast<std::int64_t>(padded), sum.data());
  }
  std::vector<float> losses;
  for (std::size_t j = 0; j < rows.size(); ++j)
    losses.push_back(std::sqrt(sum[j] / static_cast<float>(std::max<std::size_t>(1, count))));
  return losses;
}

float Summariser::spread(const BlockRows& b) const {
  double mass = 0.0, entropy = 0.0;
  for (std::int64_t j = 0; j < b.rows; ++j)
    mass += std::sqrt(static_cast<double>(squares_[static_cast<std::size_t>(j)]));
  if (!(mass > 0.0)) return 0.0f;
  for (std::int64_t j = 0; j < b.rows; ++j) {
    const double p = std::sqrt(static_cast<double>(squares_[static_cast<std::size_t>(j)])) / mass;
    if (p > 0.0) entropy -= p * std::log(p);
  }
  return static_cast<float>(std::exp(entropy) * mass);
}

// Of the block's log mass when only `rows` stay, mean over references, weighted with the block's share. A
// block of which nothing is left would miss an infinity: what its smallest number is away from 1 stands for
// that.
float Summariser::mass_lost(const std::vector<std::int64_t>& rows) const {
  double sum = 0.0, weights = 1e-30;
  for (std::int64_t i = 0; i < count_; ++i) {
    const float* share = shares_.data() + i * stride_;
    double left = 0.0;
    for (const std::int64_t j : rows) left += static_cast<double>(share[j]);
    const auto w = static_cast<double>(weight_[static_cast<std::size_t>(i)]);
    sum -= w * std::log(std::clamp(left, static_cast<double>(std::numeric_limits<float>::min()), 1.0));
    weights += w;
  }
  return static_cast<float>(sum / weights);
}

std::vector<float> Summariser::row_losses(const BlockRows& b, const ReferenceRows& r, float scale) {
  attend(b, r, scale);
  mix_outputs(b);
  std::vector<std::int64_t> all(static_cast<std::size_t>(b.rows));
  std::iota(all.begin(), all.end(), 0);
  return losses_of(b, all);
}

Summarised Summariser::summarise(const BlockRows& b, const std::vector<float>& counts, const ReferenceRows& r,
                                 const SummaryRules& rules) {
  attend(b, r, rules.scale);
  mix_outputs(b);
  const std::int64_t pinned =
      rules.pinned == nullptr ? 0 : std::count(rules.pinned->begin(), rules.pinned->end(), true);
  const auto exact_count = static_cast<std::size_t>(std::min(rules.exact + pinned, b.rows));
  auto ranking = rank_rows(b, rules, exact_count);
  if (rules.pinned != nullptr) pinned_first(ranking, *rules.pinned);
  std::vector<std::int64_t> exact(ranking.begin(),
                                  ranking.begin() + static_cast<std::ptrdiff_t>(exact_count));
  std::vector<std::int64_t> rest(ranking.begin() + static_cast<std::ptrdiff_t>(exact_count), ranking.end());
  std::sort(exact.begin(), exact.end());
  std::sort(rest.begin(), rest.end());
  const auto pivots = choose_pivots(b, rest, rules);

  Summarised result;
  result.spread = spread(b);
  const auto losses = rules.scored ? losses_of(b, exact) : std::vector<float>(exact.size(), 0.0f);
  for (std::size_t i = 0; i < exact.size(); ++i)
    result.kept.push_back({exact[i], b.bias[static_cast<std::size_t>(exact[i])],
                           counts[static_cast<std::size_t>(exact[i])], losses[i] * rules.weight, -1});
  if (!pivots.empty()) {
    FitInput in{.block = b,
                .references = r,
                .exact = exact,
                .rest = rest,
                .pivots = pivots,
                .assigned = assign(b, rest, pivots, rules),
                .shares = shares_.data(),
                .stride = stride_,
                .log_mass = log_mass_,
                .weight = weight_,
                .outputs = outputs_,
                .fit = rules.summary == Summary::fit};
    Fitted fitted = fit_summaries(kernels_, in);
    std::vector<float> stands_for(pivots.size(), 0.0f);
    for (std::size_t i = 0; i < rest.size(); ++i)
      stands_for[static_cast<std::size_t>(in.assigned[i])] += counts[static_cast<std::size_t>(rest[i])];
    for (std::size_t p = 0; p < pivots.size(); ++p)
      result.kept.push_back(
          {pivots[p], fitted.bias[p], stands_for[p], kSummaryScore, static_cast<std::int64_t>(p)});
    result.values = std::move(fitted.values);
    result.log_mass_error = fitted.log_mass_error;
    result.rejected = fitted.rejected;
  } else {
    result.log_mass_error = mass_lost(exact);
  }
  std::sort(result.kept.begin(), result.kept.end(),
            [](const KeptRow& x, const KeptRow& y) { return x.row < y.row; });
  return result;
}

}  // namespace kvtide
