#include "state/procedural/fit.h"

#include <algorithm>
#include <cmath>

namespace kvtide {
namespace {

constexpr double kBiasPull = 1e-2, kValuePull = 1e-2;  // ridges, relative to the mean diagonal
constexpr double kLeastBias = -3.0, kMostBias = 7.0;
constexpr int kSweeps = 25;
constexpr std::int64_t kHeldOut = 5;  // every fifth reference judges the fit

bool held_out(std::int64_t i) { return i % kHeldOut == kHeldOut - 1; }

struct Square {  // symmetric, row after row
  std::size_t size;
  std::vector<double> at;
  explicit Square(std::size_t n) : size(n), at(n * n, 0.0) {}
  double& operator()(std::size_t i, std::size_t j) { return at[i * size + j]; }
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

// The kept rows as a reference sees them: exact ones first, then the summaries.
class Kept {
 public:
  Kept(const DenseRow& kernels, const FitInput& in)
      : kernels_(kernels),
        in_(in),
        exact_(in.exact.size()),
        rows_(static_cast<std::int64_t>(in.exact.size() + in.pivots.size())),
        padded_((rows_ + 15) / 16 * 16),
        values_(static_cast<std::size_t>(padded_ * in.block.padded_dim), 0.0f) {
    for (std::size_t e = 0; e < exact_; ++e)
      std::copy_n(in.block.values.data() + in.exact[e] * in.block.padded_dim, in.block.padded_dim,
                  values_.data() + static_cast<std::int64_t>(e) * in.block.padded_dim);
  }

  std::int64_t padded() const { return padded_; }
  const std::vector<float>& values() const { return values_; }
  void set_values(const std::vector<float>& summaries) {
    std::copy(summaries.begin(), summaries.end(),
              values_.begin() + static_cast<std::int64_t>(exact_) * in_.block.padded_dim);
  }
  // Softmax of reference i with the summaries' biases, [padded]; returns its log mass.
  float soften(std::int64_t i, const std::vector<float>& bias, float* out) const {
    const float* row = in_.scores + i * in_.stride;
    for (std::size_t e = 0; e < exact_; ++e) out[e] = row[in_.exact[e]];
    for (std::size_t p = 0; p < in_.pivots.size(); ++p)
      out[exact_ + p] =
          row[in_.pivots[p]] - in_.block.bias[static_cast<std::size_t>(in_.pivots[p])] + bias[p];
    for (std::int64_t j = rows_; j < padded_; ++j) out[j] = -__builtin_inff();
    return kernels_.soften(out, padded_);
  }
  // Squared error of what the block adds to the whole output, over the held-out references; mean error of the
  // log mass over all.
  double error(const std::vector<float>& bias, const std::vector<float>& summaries, float* log_mass_error) {
    set_values(summaries);
    const std::int64_t dim = in_.block.padded_dim;
    std::vector<float> shares(static_cast<std::size_t>(padded_)), out(static_cast<std::size_t>(dim));
    double sum = 0.0, mass_error = 0.0, weights = 1e-30;
    for (std::int64_t i = 0; i < in_.references.count; ++i) {
      const auto index = static_cast<std::size_t>(i);
      const float mass = soften(i, bias, shares.data());
      const float w = in_.weight[index];
      mass_error += static_cast<double>(w) * std::fabs(static_cast<double>(mass - in_.log_mass[index]));
      weights += static_cast<double>(w);
      if (!held_out(i)) continue;
      kernels_.mix(shares.data(), 1, padded_, values_.data(), dim, out.data());
      const float ours = 1.0f / (1.0f + std::exp(in_.references.log_mass[index] - mass));
      const float* block = in_.outputs.data() + i * dim;
      for (std::int64_t d = 0; d < in_.block.dim; ++d) {
        const float difference = ours * out[static_cast<std::size_t>(d)] - w * block[d];
        sum += static_cast<double>(difference) * static_cast<double>(difference);
      }
    }
    *log_mass_error = static_cast<float>(mass_error / weights);
    return sum;
  }

 private:
  const DenseRow& kernels_;
  const FitInput& in_;
  std::size_t exact_;
  std::int64_t rows_, padded_;
  std::vector<float> values_;  // [padded][padded_dim]
};

// ln of the mass assigned to each pivot, and the mean of the values that go with it.
void start_from_clusters(const FitInput& in, std::vector<float>& log_count, std::vector<float>& means) {
  const std::int64_t dim = in.block.padded_dim;
  std::vector<double> mass(in.pivots.size(), 0.0),
      sums(in.pivots.size() * static_cast<std::size_t>(dim), 0.0);
  for (std::size_t i = 0; i < in.rest.size(); ++i) {
    const auto p = static_cast<std::size_t>(in.assigned[i]);
    const double m = std::exp(static_cast<double>(in.block.bias[static_cast<std::size_t>(in.rest[i])]));
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
  std::vector<double> h(r, 0.0), a(r);
  for (std::int64_t i = 0; i < in.references.count; ++i) {
    if (held_out(i)) continue;
    const auto index = static_cast<std::size_t>(i);
    const float* score = in.scores + i * in.stride;
    const float* share = in.shares + i * in.stride;
    double target = 0.0;
    for (const std::int64_t j : in.rest) target += static_cast<double>(share[j]);
    const double w = static_cast<double>(in.weight[index]);
    for (std::size_t p = 0; p < r; ++p) {
      const float own = in.block.bias[static_cast<std::size_t>(in.pivots[p])];
      a[p] = w * std::exp(static_cast<double>(score[in.pivots[p]] - own + log_count[p] - in.log_mass[index]));
    }
    for (std::size_t p = 0; p < r; ++p) {
      h[p] += a[p] * w * target;
      for (std::size_t q = 0; q < r; ++q) gram(p, q) += a[p] * a[q];
    }
  }
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

std::vector<float> fit_values(const DenseRow& kernels, const FitInput& in, Kept& kept,
                              const std::vector<float>& bias, const std::vector<float>& means) {
  const std::size_t r = in.pivots.size(), exact = in.exact.size();
  const std::int64_t dim = in.block.padded_dim;
  const auto columns = static_cast<std::size_t>(dim);
  kept.set_values(means);
  Square gram(r);
  std::vector<double> right(r * columns, 0.0);
  std::vector<float> shares(static_cast<std::size_t>(kept.padded())), out(columns);
  for (std::int64_t i = 0; i < in.references.count; ++i) {
    if (held_out(i)) continue;
    kept.soften(i, bias, shares.data());
    kernels.mix(shares.data(), 1, kept.padded(), kept.values().data(), dim, out.data());
    const double w = static_cast<double>(in.weight[static_cast<std::size_t>(i)]);
    const float* target = in.outputs.data() + i * dim;
    for (std::size_t p = 0; p < r; ++p) {
      const double x = w * static_cast<double>(shares[exact + p]);
      for (std::size_t q = 0; q < r; ++q) gram(p, q) += x * w * static_cast<double>(shares[exact + q]);
      for (std::size_t d = 0; d < columns; ++d)
        right[p * columns + d] += x * w * static_cast<double>(target[d] - out[d]);
    }
  }
  const double lambda = std::max(1e-12, kValuePull * gram.mean_diagonal());
  for (std::size_t p = 0; p < r; ++p) gram(p, p) += lambda;
  std::vector<float> values = means;
  if (!solve(gram, right, columns)) return values;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += static_cast<float>(right[i]);
  return values;
}

}  // namespace

Fitted fit_summaries(const DenseRow& kernels, const FitInput& in) {
  Fitted result;
  std::vector<float> log_count, means;
  start_from_clusters(in, log_count, means);
  Kept kept(kernels, in);
  if (in.fit) {
    result.bias = fit_biases(in, log_count);
    result.values = fit_values(kernels, in, kept, result.bias, means);
    float plain_mass_error = 0.0f;
    const double fitted = kept.error(result.bias, result.values, &result.log_mass_error);
    const double plain = kept.error(log_count, means, &plain_mass_error);
    // `!(a < b)`: what is not a number is rejected, too.
    if (fitted < plain && std::isfinite(result.log_mass_error)) return result;
    result.rejected = true;
  }
  kept.error(log_count, means, &result.log_mass_error);
  result.bias = std::move(log_count);
  result.values = std::move(means);
  return result;
}

}  // namespace kvtide
