// What share of the processor's 8-bit dot products the matrix products reach, type by type, on one thread: the best of
// many short rounds, so that other work on the machine counts little.
//
//   bench_matmul [KERNELS]
#include <cstdio>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "bench/best_of.h"
#include "kernels/kernels.h"
#include "kernels/matmul.h"
#include "kernels/pack.h"

namespace {

using namespace kvtide;
using bench::best_of;

constexpr std::int64_t kColumns = 2048, kWeightRows = 512;

// Activations of made-up numbers, quantised.
struct Rows {
  std::int64_t count;
  std::vector<float> x, d, d_sum;
  std::vector<std::int8_t> q;
  std::vector<std::int32_t> minus_sums;
  Activations view;

  Rows(const Kernels& kernels, std::int64_t rows)
      : count(rows),
        x(static_cast<std::size_t>(rows * kColumns)),
        d(x.size() / 32),
        d_sum(x.size() / 32),
        q(x.size()),
        minus_sums(x.size() / 16) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 2003) - 1000.0f;
    view = {rows, kColumns, x.data()};
    view.quants = {rows, kColumns, {0, q.data(), d.data(), d_sum.data(), minus_sums.data()}};
    for (std::int64_t row = 0; row < rows; ++row)
      kernels.elementwise.quantize(x.data() + row * kColumns, kColumns, view.quants.row(row));
  }
};

void measure(const Kernels& kernels, ThreadPool& pool, DType dtype, const Rows& rows, double limit) {
  const std::int64_t bytes = panel_bytes(dtype, kColumns), panels = kWeightRows / kPanelRows;
  Buffer memory(static_cast<std::size_t>(panels * bytes));
  for (std::size_t i = 0; i < memory.size(); ++i)
    memory.data()[i] = static_cast<std::byte>(i * 7919 >> 3 & 0x3f);
  const WeightMatrix weights{
      .dtype = dtype, .rows = kWeightRows, .columns = kColumns, .panels = memory.data()};
  std::vector<float> y(static_cast<std::size_t>(rows.count * kWeightRows));
  const MatmulJob job{&weights, y.data(), kWeightRows};
  const double seconds = best_of([&] { matmul(pool, kernels.matmul, rows.view, {&job, 1}); });
  const double work = 2.0 * static_cast<double>(rows.count * kWeightRows * kColumns);
  std::printf("%-5s %4lld rows %8.0f GOP/s %6.1f%% of the limit %7.1f GB/s of weights\n",
              std::string(dtype_info(dtype).name).c_str(), static_cast<long long>(rows.count),
              work / seconds * 1e-9, work / seconds * 1e-7 / limit,
              static_cast<double>(memory.size()) / seconds * 1e-9);
}

}  // namespace

int main(int count, char** words) {
  const Kernels& kernels = count > 1 ? kernels_by_name(words[1]) : best_kernels();
  ThreadPool pool(1);
  volatile std::int32_t sink = 0;
  const std::int64_t rounds = 20000;
  const double seconds = best_of([&] { sink = kernels.probe.dot(rounds); });
  const double limit = static_cast<double>(kernels.probe.dot_op * rounds) / seconds * 1e-9;
  std::printf("%s: the limit of 8-bit dot products on one thread is %.0f GOP/s\n", kernels.isa, limit);
  for (const std::int64_t rows : {128, 8, 1}) {
    const Rows x(kernels, rows);
    for (const DType dtype :
         {DType::q4_0, DType::q4_1, DType::q5_0, DType::q8_0, DType::q4_k, DType::q5_k, DType::q6_k})
      measure(kernels, pool, dtype, x, limit);
  }
}
