#include "state/procedural/fit.h"

#include <algorithm>
#include <cmath>

#include "state/procedural/least_squares.h"

namespace kvtide {
namespace {

constexpr double kBiasPull = 1e-2, kValuePull = 1e-2;  // ridges, relative to the mean diagonal
constexpr double kLeastBias = -3.0, kMostBias = 7.0;
constexpr std::size_t kHeldOut = 5;  // every fifth reference judges the fit

bool held_out(std::size_t i) { return i % kHeldOut == kHeldOut - 1; }

float sum_of(const float (&lanes)[16]) {
  float four[4];
  for (std::size_t k = 0; k < 4; ++k) four[k] = (lanes[k] + lanes[k + 8]) + (lanes[k + 4] + lanes[k + 12]);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// What the references say of the summaries, weighted: [references][columns], and transposed, [width][references]. References
// that are held out, and columns up to whole vectors, count nothing.
struct Equations {
  std::size_t count, width, columns;
  std::vector<float> rows, turned;
  Equations(std::size_t references, std::size_t width_)
      : count(references),
        width(width_),
        columns((width + 15) / 16 * 16),
        rows(count * columns),
        turned(width * count) {}
  void set(std::size_t i, std::size_t column, float value) {
    rows[i * columns + column] = value;
    turned[column * count + i] = value;
  }
  // Sums over the references: [width][other_columns].
  std::vector<float> products(const DenseRow& kernels, const std::vector<float>& other,
                              std::size_t other_columns) const {
    std::vector<float> out(width * other_columns);
    kernels.mix(turned.data(), static_cast<std::int64_t>(width), static_cast<std::int64_t>(count),
                other.data(), static_cast<std::int64_t>(other_columns), out.data());
    return out;
  }
};

// The kept rows as references see them: exact rows first, then the summaries. Rows are padded to whole vectors with rows
// that have no mass.
class Kept {
 public:
  Kept(const DenseRow& kernels, const FitInput& in, const std::vector<double>& log_count)
      : kernels_(kernels),
        in_(in),
        exact_(in.exact.size()),
        padded_((exact_ + in.pivots.size() + 15) / 16 * 16),
        dim_(static_cast<std::size_t>(in.block.padded_dim)),
        values_(padded_ * dim_),
        masses_(static_cast<std::size_t>(in.references.count) * padded_) {
    for (std::size_t e = 0; e < exact_; ++e)
      std::copy_n(in.block.values.data() + in.exact[e] * in.block.padded_dim, dim_,
                  values_.data() + e * dim_);
    std::vector<float> growth;  // of a pivot's own mass
    for (std::size_t p = 0; p < in.pivots.size(); ++p)
      growth.push_back(static_cast<float>(std::exp(
          log_count[p] - static_cast<double>(in.block.bias[static_cast<std::size_t>(in.pivots[p])]))));
    for (std::int64_t i = 0; i < in.references.count; ++i) {
      const float* share = in.shares + i * in.stride;
      float* to = masses_.data() + static_cast<std::size_t>(i) * padded_;
      for (std::size_t e = 0; e < exact_; ++e) to[e] = share[in.exact[e]];
      for (std::size_t p = 0; p < growth.size(); ++p) to[exact_ + p] = growth[p] * share[in.pivots[p]];
    }
  }

  std::size_t exact() const { return exact_; }
  // [padded] of reference i: what its rows weigh, those of a pivot n times, as shares of the whole block.
  const float* masses(std::size_t i) const { return masses_.data() + i * padded_; }
  // [padded] of the k-th reference asked, after weigh().
  const float* shares(std::size_t k) const { return shares_.data() + k * padded_; }

  // The softmax over kept rows of every step-th reference from `first` on, summary p with u[p] times its mass.
  void weigh(const std::vector<float>& u, std::size_t first, std::size_t step) {
    const auto count = static_cast<std::size_t>(in_.references.count);
    asked_.clear();
    for (std::size_t i = first; i < count; i += step) asked_.push_back(i);
    shares_.resize(asked_.size() * padded_);
    log_mass_.resize(asked_.size());
    times_.assign(padded_, 1.0f);
    std::copy(u.begin(), u.end(), times_.begin() + static_cast<std::ptrdiff_t>(exact_));
    for (std::size_t k = 0; k < asked_.size(); ++k)
      log_mass_[k] = in_.log_mass[asked_[k]] + std::log(kernels_.weigh(masses(asked_[k]), times_.data(),
                                                                       static_cast<std::int64_t>(padded_),
                                                                       shares_.data() + k * padded_));
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
      sum += w * std::fabs(static_cast<double>(log_mass_[k] - in_.log_mass[asked_[k]]));
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
      const float ours = 1.0f / (1.0f + std::exp(in_.references.log_mass[i] - log_mass_[k]));
      const float *kept = out.data() + k * dim_, *wanted = in_.outputs.data() + i * dim_;
      float squares[16] = {};
      for (std::size_t d = 0; d < dim_; d += 16)
        for (std::size_t lane = 0; lane < 16; ++lane) {
          const float difference = ours * kept[d + lane] - w * wanted[d + lane];
          squares[lane] += difference * difference;
        }
      sum += static_cast<double>(sum_of(squares));
    }
    return sum;
  }

 private:
  const DenseRow& kernels_;
  const FitInput& in_;
  std::size_t exact_, padded_, dim_;
  std::vector<float> values_;  // [padded][dim]
  std::vector<float> masses_;  // [references][padded]
  std::vector<std::size_t> asked_;
  std::vector<float> times_;     // [padded]
  std::vector<float> shares_;    // [references asked][padded]
  std::vector<float> log_mass_;  // [references asked]
  std::vector<float> out_;
};

// ln of the mass assigned to each pivot, and the mean of the values that go with it.
void start_from_clusters(const DenseRow& kernels, const FitInput& in, std::vector<double>& log_count,
                         std::vector<float>& means) {
  const auto rows = static_cast<std::size_t>(in.block.padded_rows),
             dim = static_cast<std::size_t>(in.block.padded_dim);
  std::vector<double> mass(in.pivots.size(), 0.0);
  std::vector<float> parts(in.pivots.size() * rows);  // of each row in the pivots
  for (std::size_t i = 0; i < in.rest.size(); ++i) {
    const auto p = static_cast<std::size_t>(in.assigned[i]), row = static_cast<std::size_t>(in.rest[i]);
    const float m = in.block.bias[row] == 0.0f ? 1.0f : std::exp(in.block.bias[row]);
    mass[p] += static_cast<double>(m);
    parts[p * rows + row] = m;
  }
  means.resize(in.pivots.size() * dim);
  kernels.mix(parts.data(), std::ssize(in.pivots), in.block.padded_rows, in.block.values.data(),
              in.block.padded_dim, means.data());
  for (std::size_t p = 0; p < mass.size(); ++p) {
    log_count.push_back(std::log(mass[p]));
    for (std::size_t d = 0; d < dim; ++d) means[p * dim + d] /= static_cast<float>(mass[p]);
  }
}

// What each pivot's mass is multiplied with.
std::vector<float> fit_masses(const DenseRow& kernels, const FitInput& in, const Kept& kept,
                              const std::vector<double>& log_count) {
  const std::size_t r = in.pivots.size(), exact = kept.exact();
  const auto count = static_cast<std::size_t>(in.references.count);
  Equations a(count, r + 1);  // and the wanted sums behind the pivots
  for (std::size_t i = 0; i < count; ++i) {
    if (held_out(i)) continue;
    const float *mass = kept.masses(i), w = in.weight[i];
    float sums[4] = {};
    std::size_t e = 0;
    for (; e + 4 <= exact; e += 4)
      for (std::size_t k = 0; k < 4; ++k) sums[k] += mass[e + k];
    for (std::size_t k = 0; e < exact; ++e, ++k) sums[k] += mass[e];
    for (std::size_t p = 0; p < r; ++p) a.set(i, p, w * mass[exact + p]);
    a.set(i, r, w * std::max(0.0f, 1.0f - ((sums[0] + sums[1]) + (sums[2] + sums[3]))));
  }
  const std::vector<float> sums = a.products(kernels, a.rows, a.columns);
  Square gram(r, sums, a.columns);
  const double mu = kBiasPull * gram.mean_diagonal();
  std::vector<double> h, u(r, 1.0), low, high;
  for (std::size_t p = 0; p < r; ++p) {
    gram(p, p) += mu;
    h.push_back(static_cast<double>(sums[p * a.columns + r]) + mu);
    low.push_back(std::min(1.0, std::exp(kLeastBias - log_count[p])));
    high.push_back(std::max(1.0, std::exp(kMostBias - log_count[p])));
  }
  descend(gram, h, low, high, u);
  return {u.begin(), u.end()};
}

// kept: weighed as the values will be.
std::vector<float> fit_values(const DenseRow& kernels, const FitInput& in, Kept& kept,
                              const std::vector<float>& means) {
  const std::size_t r = in.pivots.size(), exact = kept.exact();
  const auto dim = static_cast<std::size_t>(in.block.padded_dim);
  const auto count = static_cast<std::size_t>(in.references.count);
  const std::vector<float>& out = kept.outputs(means);
  Equations x(count, r);
  std::vector<float> missing(count * dim);
  for (std::size_t i = 0; i < count; ++i) {
    if (held_out(i)) continue;
    const float w = in.weight[i];
    for (std::size_t p = 0; p < r; ++p) x.set(i, p, w * kept.shares(i)[exact + p]);
    for (std::size_t d = 0; d < dim; ++d)
      missing[i * dim + d] = w * (in.outputs[i * dim + d] - out[i * dim + d]);
  }
  Square gram(r, x.products(kernels, x.rows, x.columns), x.columns);
  const std::vector<float> right = x.products(kernels, missing, dim);
  const double lambda = std::max(1e-12, kValuePull * gram.mean_diagonal());
  for (std::size_t p = 0; p < r; ++p) gram(p, p) += lambda;
  std::vector<double> solution(right.begin(), right.end());
  std::vector<float> values = means;
  if (!solve(gram, solution, dim)) return values;
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += static_cast<float>(solution[i]);
  return values;
}

// With these masses: ln n of every summary, and what is added to it.
std::vector<float> biases_of(const std::vector<double>& log_count, const std::vector<float>& u) {
  std::vector<float> bias;
  for (std::size_t p = 0; p < u.size(); ++p)
    bias.push_back(static_cast<float>(log_count[p] + std::log(static_cast<double>(u[p]))));
  return bias;
}

}  // namespace

Fitted fit_summaries(const DenseRow& kernels, const FitInput& in) {
  Fitted result;
  std::vector<double> log_count;
  std::vector<float> means;
  start_from_clusters(kernels, in, log_count, means);
  Kept kept(kernels, in, log_count);
  const std::vector<float> as_counted(in.pivots.size(), 1.0f);
  if (in.fit) {
    const std::vector<float> u = fit_masses(kernels, in, kept, log_count);
    kept.weigh(u, 0, 1);
    result.values = fit_values(kernels, in, kept, means);
    result.log_mass_error = kept.mass_error();
    kept.weigh(u, kHeldOut - 1, kHeldOut);
    const double fitted = kept.error(result.values);
    kept.weigh(as_counted, kHeldOut - 1, kHeldOut);
    // `!(a < b)`: what is not a number is rejected, too.
    if (fitted < kept.error(means) && std::isfinite(result.log_mass_error)) {
      result.bias = biases_of(log_count, u);
      return result;
    }
    result.rejected = true;
  }
  kept.weigh(as_counted, 0, 1);
  result.log_mass_error = kept.mass_error();
  result.bias = biases_of(log_count, as_counted);
  result.values = std::move(means);
  return result;
}

}  // namespace kvtide
