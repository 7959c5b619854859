// least_squares.h: the small systems of equations that fits of summaries come down to, in double precision.
#pragma once

#include <cstddef>
#include <vector>

namespace kvtide {

struct Square {  // symmetric, row after row
  std::size_t size;
  std::vector<double> at;
  // The first n columns and rows of a matrix with `stride` columns.
  Square(std::size_t n, const std::vector<float>& from, std::size_t stride) : size(n), at(n * n) {
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) at[i * n + j] = static_cast<double>(from[i * stride + j]);
  }
  double& operator()(std::size_t i, std::size_t j) { return at[i * size + j]; }
  double mean_diagonal() const {
    double sum = 0.0;
    for (std::size_t i = 0; i < size; ++i) sum += at[i * size + i];
    return sum / static_cast<double>(size);
  }
};

// Minimises u'Gu/2 - h'u within [low, high], all of [size], from `u` on, by cyclic coordinate descent.
void descend(Square& g, const std::vector<double>& h, const std::vector<double>& low,
             const std::vector<double>& high, std::vector<double>& u);

// Solves G X = R in place, R [size][columns]. False when G is not positive.
bool solve(Square& g, std::vector<double>& r, std::size_t columns);

}  // namespace kvtide
