#include "state/procedural/fit.h"

#include <algorithm>
#include <cmath>

namespace kvtide {
namespace {

constexpr double kBiasPull = 1e-2, kValuePull = 1e-2;  // ridges, relative to the mean diagonal
constexpr double kLeastBias = -3.0, kMostBias = 7.0;
constexpr int kSweeps = 25;
constexpr std::size_t kHeldOut = 5;  // every fifth reference judges the fit

bool held_out(std::size_t i) { return i % kHeldOut == kHeldOut - 1; }

struct Square {  // symmetric, row after row
  std::size_t size;
  std::vector<double> at;
  explicit Square(std::size_t n) : size(n), at(n * n, 0.0) {}
  double& operator()(std::size_t i, std::size_t j) { return at[i * size + j]; }
  // Only what lies on the diagonal and below it was written.
  void mirror() {
    for (std::size_t i = 0; i < size; ++i)
      for (std::size_t j = i + 1; j < size; ++j) at[i * size + j] = at[j * size + i];
  }
  double mean_diagonal() const {
    double sum = 0.0;
    for (std::size_t i = 0; i < size; ++i) sum += at[i * size + i];
    return sum / static_cast<double>(size);
  }
};

// Minimises u'Gu/2 - h'u within [low, high] from `u`, by cyclic coordinate descent.
void descend(Square& g, const std::vector<double>& h, const std::vector<double>& low,
             const std::vector<double>& high, std::vector<double>& u) {
  for (int sweep = 0; sweep < kSweeps; ++sweep)
    for (std::size_t j = 0; j < u.size(); ++j) {
      double gradient = -h[j];
      for (std::size_t k = 0; k < u.size(); ++k) gradient += g(j, k) * u[k];
      u[j] = std::clamp(u[j] - gradient / std::max(g(j, j), 1e-300), low[j], high[j]);
    }
}

// Solves G X = R in place, R [size][columns]. False when G is not positive.
bool solve(Square& g, std::vector<double>& r, std::size_t columns) {
  const std::size_t n = g.size;
  for (std::size_t j = 0; j < n; ++j) {
    double pivot = g(j, j);
    for (std::size_t k = 0; k < j; ++k) pivot -= g(j, k) * g(j, k);
    if (!(pivot > 0.0)) return false;
    g(j, j) = std::sqrt(pivot);
    for (std::size_t i = j + 1; i < n; ++i) {
      double sum = g(i, j);
      for (std::size_t k = 0; k < j; ++k) sum -= g(i, k) * g(j, k);
      g(i, j) = sum / g(j, j);
    }
  }
  for (std::size_t c = 0; c < columns; ++c) {
    for (std::size_t i = 0; i < n; ++i) {
      double sum = r[i * columns + c];
      for (std::size_t k = 0; k < i; ++k) sum -= g(i, k) * r[k * columns + c];
      r[i * columns + c] = sum / g(i, i);
    }
    for (std::size_t i = n; i-- > 0;) {
      double sum = r[i * columns + c];
      for (std::size_t k = i + 1; k < n; ++k) sum -= g(k, i) * r[k * columns + c];
      r[i * columns + c] = sum / g(i, i);
    }
  }
  return true;
}

// The kept rows as every step-th reference from `first` on sees them: exact rows first, then the summaries.
// Rows are padded to whole vectors with rows that have no mass.
class Kept {
 public:
  Kept(const DenseRow& kernels, const FitInput& in, std::size_t first, std::size_t step)
      : kernels_(kernels),
        in_(in),
        exact_(in.exact.size()),
        dim_(static_cast<std::size_t>(in.block.padded_dim)) {
    for (std::size_t i = first; i < static_cast<std::size_t>(in.references.count); i += step)
      asked_.push_back(i);
    padded_ = (exact_ + in.pivots.size() + 15) / 16 * 16;
    values_.assign(padded_ * dim_, 0.0f);
    scores_.assign(asked_.size() * padded_, -__builtin_inff());
    mass_.resize(asked_.size());
    for (std::size_t e = 0; e < exact_; ++e)
      std::copy_n(in.block.values.data() + in.exact[e] * in.block.padded_dim, dim_,
                  values_.data() + e * dim_);
    for (std::size_t k = 0; k < asked_.size(); ++k) {
      const float* from = in.scores + static_cast<std::int64_t>(asked_[k]) * in.stride;
      float* to = scores_.data() + k * padded_;
      for (std::size_t e = 0; e < exact_; ++e) to[e] = from[in.exact[e]];
      for (std::size_t p = 0; p < in.pivots.size(); ++p)
        to[exact_ + p] = from[in.pivots[p]] - in.block.bias[static_cast<std::size_t>(in.pivots[p])];
    }
  }

  std::size_t exact() const { return exact_; }
  // [padded] of the k-th reference asked, after soften().
  const float* shares(std::size_t k) const { return shares_.data() + k * padded_; }

  // The softmax of every reference asked with these biases of the summaries.
  void soften(const std::vector<float>& bias) {
    shares_ = scores_;
    for (std::size_t k = 0; k < asked_.size(); ++k) {
      float* row = shares_.data() + k * padded_;
      for (std::size_t p = 0; p < bias.size(); ++p) row[exact_ + p] += bias[p];
      mass_[k] = kernels_.soften(row, static_cast<std::int64_t>(padded_));
    }
  }
  // What they get with these values of the summaries: [references asked][dim].
  const std::vector<float>& outputs(const std::vector<float>& summaries) {
    std::copy(summaries.begin(), summaries.end(),
              values_.begin() + static_cast<std::ptrdiff_t>(exact_ * dim_));
    out_.resize(asked_.size() * dim_);
    kernels_.mix(shares_.data(), static_cast<std::int64_t>(asked_.size()), static_cast<std::int64_t>(padded_),
                 values_.data(), in_.block.padded_dim, out_.data());
    return out_;
  }
  // Mean error of the log mass, weighted with the block's share.
  float mass_error() const {
    double sum = 0.0, weights = 1e-30;
    for (std::size_t k = 0; k < asked_.size(); ++k) {
      const double w = static_cast<double>(in_.weight[asked_[k]]);
      sum += w * std::fabs(static_cast<double>(mass_[k] - in_.log_mass[asked_[k]]));
      weights += w;
    }
    return static_cast<float>(sum / weights);
  }
  // Squared error of what the block adds to the whole output.
  double error(const std::vector<float>& summaries) {
    const std::vector<float>& out = outputs(summaries);
    double sum = 0.0;
    for (std::size_t k = 0; k < asked_.size(); ++k) {
      const std::size_t i = asked_[k];
      const float w = in_.weight[i];
      const float ours = 1.0f / (1.0f + std::exp(in_.references.log_mass[i] - mass_[k]));
      const float *kept = out.data() + k * dim_, *wanted = in_.outputs.data() + i * dim_;
      float squares[4] = {};
      for (std::size_t d = 0; d < dim_; d += 4)
        for (std::size_t lane = 0; lane < 4; ++lane) {
          const float difference = ours * kept[d + lane] - w * wanted[d + lane];
          squares[lane] += difference * difference;
        }
      for (const float square : squares) sum += static_cast<double>(square);
    }
    return sum;
  }

 private:
  const DenseRow& kernels_;
  const FitInput& in_;
  std::vector<std::size_t> asked_;
  std::size_t exact_, padded_ = 0, dim_;
  std::vector<float> values_;           // [padded][dim]
  std::vector<float> scores_, shares_;  // [references asked][padded]
  std::vector<float> mass_;             // [references asked]
  std::vector<float> out_;
};

// ln of the mass assigned to each pivot, and the mean of the values that go with it.
void start_from_clusters(const FitInput& in, std::vector<float>& log_count, std::vector<float>& means) {
  const std::int64_t dim = in.block.padded_dim;
  std::vector<double> mass(in.pivots.size(), 0.0),
      sums(in.pivots.size() * static_cast<std::size_t>(dim), 0.0);
  for (std::size_t i = 0; i < in.rest.size(); ++i) {
    const auto p = static_cast<std::size_t>(in.assigned[i]);
    const float bias = in.block.bias[static_cast<std::size_t>(in.rest[i])];
    const double m = bias == 0.0f ? 1.0 : std::exp(static_cast<double>(bias));
    mass[p] += m;
    const float* value = in.block.values.data() + in.rest[i] * dim;
    for (std::int64_t d = 0; d < dim; ++d)
      sums[p * static_cast<std::size_t>(dim) + static_cast<std::size_t>(d)] +=
          m * static_cast<double>(value[d]);
  }
  for (std::size_t p = 0; p < mass.size(); ++p) {
    log_count.push_back(static_cast<float>(std::log(mass[p])));
    for (std::int64_t d = 0; d < dim; ++d)
      means.push_back(static_cast<float>(
          sums[p * static_cast<std::size_t>(dim) + static_cast<std::size_t>(d)] / mass[p]));
  }
}

std::vector<float> fit_biases(const FitInput& in, const std::vector<float>& log_count) {
  const std::size_t r = in.pivots.size();
  Square gram(r);
  std::vector<double> h(r, 0.0), a(r), growth(r);
  // e^(score - own bias + ln n - block's log mass) is a share, but for factors of the pivot.
  for (std::size_t p = 0; p < r; ++p)
    growth[p] = std::exp(static_cast<double>(log_count[p]) -
                         static_cast<double>(in.block.bias[static_cast<std::size_t>(in.pivots[p])]));
  for (std::size_t i = 0; i < static_cast<std::size_t>(in.references.count); ++i) {
    if (held_out(i)) continue;
    const float* share = in.shares + static_cast<std::int64_t>(i) * in.stride;
    float kept[4] = {};
    for (std::size_t e = 0; e < in.exact.size(); ++e) kept[e % 4] += share[in.exact[e]];
    const double target = std::max(0.0, 1.0 - static_cast<double>((kept[0] + kept[1]) + (kept[2] + kept[3])));
    const double w = static_cast<double>(in.weight[i]);
    for (std::size_t p = 0; p < r; ++p) a[p] = w * growth[p] * static_cast<double>(share[in.pivots[p]]);
    for (std::size_t p = 0; p < r; ++p) {
      h[p] += a[p] * w * target;
      for (std::size_t q = 0; q <= p; ++q) gram(p, q) += a[p] * a[q];
    }
  }
  gram.mirror();
  const double mu = kBiasPull * gram.mean_diagonal();
  std::vector<double> u(r, 1.0), low, high;
  for (std::size_t p = 0; p < r; ++p) {
    gram(p, p) += mu;
    h[p] += mu;
    const double n = static_cast<double>(log_count[p]);
    low.push_back(std::min(1.0, std::exp(kLeastBias - n)));
    high.push_back(std::max(1.0, std::exp(kMostBias - n)));
  }
  descend(gram, h, low, high, u);
  std::vector<float> bias;
  for (std::size_t p = 0; p < r; ++p) bias.push_back(log_count[p] + static_cast<float>(std::log(u[p])));
  return bias;
}

// kept: softened with the biases that go with the values.
std::vector<float> fit_values(const DenseRow& kernels, const FitInput& in, Kept& kept,
                              const std::vector<float>& means) {
  const std::size_t r = in.pivots.size(), exact = kept.exact();
  const auto dim = static_cast<std::size_t>(in.block.padded_dim);
  const auto count = static_cast<std::size_t>(in.references.count), padded = (count + 15) / 16 * 16;
  const std::vector<float>& out = kept.outputs(means);
  Square gram(r);
  // X transposed and what is missing, weighted; held-out references count nothing.
  std::vector<float> x(r * padded, 0.0f), missing(padded * dim, 0.0f), right(r * dim);
  for (std::size_t i = 0; i < count; ++i) {
    if (held_out(i)) continue;
    const float w = in.weight[i];
    const float* share = kept.shares(i) + exact;
    for (std::size_t p = 0; p < r; ++p) {
      x[p * padded + i] = w * share[p];
      const double xp = static_cast<double>(w * share[p]);
      for (std::size_t q = 0; q <= p; ++q) gram(p, q) += xp * static_cast<double>(w * share[q]);
    }
    for (std::size_t d = 0; d < dim; ++d)
      missing[i * dim + d] = w * (in.outputs[i * dim + d] - out[i * dim + d]);
  }
  kernels.mix(x.data(), static_cast<std::int64_t>(r), static_cast<std::int64_t>(padded), missing.data(),
              in.block.padded_dim, right.data());
  const double lambda = std::max(1e-12, kValuePull * gram.mean_diagonal());
  for (std::size_t p = 0; p < r; ++p) gram(p, p) += lambda;
  std::vector<double> solution(right.begin(), right.end());
  std::vector<float> values = means;
  if (!solve(gram, solution, dim)) return values;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += static_cast<float>(solution[i]);
  return values;
}

}  // namespace

Fitted fit_summaries(const DenseRow& kernels, const FitInput& in) {
  Fitted result;
  std::vector<float> log_count, means;
  start_from_clusters(in, log_count, means);
  Kept kept(kernels, in, 0, 1);
  if (in.fit) {
    result.bias = fit_biases(in, log_count);
    kept.soften(result.bias);
    result.values = fit_values(kernels, in, kept, means);
    result.log_mass_error = kept.mass_error();
    Kept judged(kernels, in, kHeldOut - 1, kHeldOut);
    judged.soften(result.bias);
    const double fitted = judged.error(result.values);
    judged.soften(log_count);
    // `!(a < b)`: what is not a number is rejected, too.
    if (fitted < judged.error(means) && std::isfinite(result.log_mass_error)) return result;
    result.rejected = true;
  }
  kept.soften(log_count);
  result.log_mass_error = kept.mass_error();
  result.bias = std::move(log_count);
  result.values = std::move(means);
  return result;
}

}  // namespace kvtide
