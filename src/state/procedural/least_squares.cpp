#include "state/procedural/least_squares.h"

#include <algorithm>
#include <cmath>

namespace kvtide {
namespace {

constexpr int kSweeps = 25;
constexpr double kSmallStep = 1e-6;  // of a sweep after which nothing more would change

// G becomes its Cholesky factor, on the diagonal and below it.
bool factor(Square& g) {
  for (std::size_t j = 0; j < g.size; ++j) {
    double pivot = g(j, j);
    for (std::size_t k = 0; k < j; ++k) pivot -= g(j, k) * g(j, k);
    if (!(pivot > 0.0)) return false;
    g(j, j) = std::sqrt(pivot);
    for (std::size_t i = j + 1; i < g.size; ++i) {
      double sum = g(i, j);
      for (std::size_t k = 0; k < j; ++k) sum -= g(i, k) * g(j, k);
      g(i, j) = sum / g(j, j);
    }
  }
  return true;
}

}  // namespace

void descend(Square& g, const std::vector<double>& h, const std::vector<double>& low,
             const std::vector<double>& high, std::vector<double>& u) {
  const std::size_t n = u.size();
  std::vector<double> gradient(n), inverse(n);
  for (std::size_t j = 0; j < n; ++j) {
    gradient[j] = -h[j];
    for (std::size_t k = 0; k < n; ++k) gradient[j] += g(j, k) * u[k];
    inverse[j] = 1.0 / std::max(g(j, j), 1e-300);
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    double largest = 0.0;
    for (std::size_t j = 0; j < n; ++j) {
      const double to = std::clamp(u[j] - gradient[j] * inverse[j], low[j], high[j]), step = to - u[j];
      u[j] = to;
      largest = std::max(largest, std::fabs(step));
      for (std::size_t k = 0; k < n; ++k) gradient[k] += step * g(j, k);
    }
    if (largest < kSmallStep) return;
  }
}

// All columns at once, side by side.
bool solve(Square& g, std::vector<double>& r, std::size_t columns) {
  if (!factor(g)) return false;
  const auto subtract = [&](std::size_t i, double times, std::size_t k) {
    for (std::size_t c = 0; c < columns; ++c) r[i * columns + c] -= times * r[k * columns + c];
  };
  const auto divide = [&](std::size_t i) {
    const double inverse = 1.0 / g(i, i);
    for (std::size_t c = 0; c < columns; ++c) r[i * columns + c] *= inverse;
  };
  for (std::size_t i = 0; i < g.size; ++i) {
    for (std::size_t k = 0; k < i; ++k) subtract(i, g(i, k), k);
    divide(i);
  }
  for (std::size_t i = g.size; i-- > 0;) {
    for (std::size_t k = i + 1; k < g.size; ++k) subtract(i, g(k, i), k);
    divide(i);
  }
  return true;
}

}  // namespace kvtide
