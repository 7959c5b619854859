// What share of the processor's bf16 products attention reaches while it reads, by head and by type of rows, on one
// thread: the best of many short rounds, so that other work on the machine counts little.
//
//   bench_attend [KERNELS]
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/best_of.h"
#include "kernels/attend.h"
#include "kernels/codec.h"
#include "kernels/kernels.h"

namespace {

using namespace kvtide;
using bench::best_of;

constexpr std::int64_t kRows = 2048;

// Numbers between -2 and 2 whose order shows no pattern.
std::vector<float> made_up(std::int64_t count) {
  std::vector<float> x(static_cast<std::size_t>(count));
  std::uint32_t state = 12345;
  for (float& one : x) {
    state = state * 1664525u + 1013904223u;
    one = static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-30f;
  }
  return x;
}

std::int64_t bytes_of(DType type, std::int64_t elements) {
  return elements / dtype_info(type).block_elements * dtype_info(type).block_bytes;
}

std::vector<std::byte> encoded(DType type, std::int64_t elements) {
  const std::vector<float> x = made_up(elements);
  std::vector<std::byte> bytes(static_cast<std::size_t>(bytes_of(type, elements)));
  encode_row(type, x.data(), elements, bytes.data());
  return bytes;
}

// A chunk of 128 queries of one KV head behind kRows rows that all of them see.
void measure(const Kernels& kernels, ThreadPool& pool, DType type, int head_dim, int heads, double limit) {
  const std::vector<std::byte> keys = encoded(type, kRows * head_dim),
                               values = encoded(type, kRows * head_dim);
  const std::int64_t tokens = 128 / heads;
  const std::vector<float> q = made_up(tokens * heads * head_dim);
  std::vector<float> out(q.size());
  Span rows;
  rows.keys = keys.data();
  rows.values = values.data();
  rows.key_type = rows.value_type = type;
  rows.key_stride = rows.value_stride = bytes_of(type, head_dim);
  rows.rows = kRows;
  rows.first = 0;
  AttendShape shape;
  shape.first = kRows;
  shape.tokens = tokens;
  shape.heads = heads;
  shape.kv_heads = 1;
  shape.head_dim = head_dim;
  shape.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  shape.bf16 = true;
  const std::vector<Span> spans[] = {{rows}};
  const ViewPoint plain[1] = {};
  const float* const queries[] = {q.data()};
  const AttendInput input{shape, plain, queries, spans};
  const double seconds = best_of([&] { attend(pool, kernels.attend, input, out.data(), nullptr); });
  const double work = 4.0 * static_cast<double>(tokens * heads * head_dim * kRows);
  std::printf("%-5s heads of %3d %8.0f GFLOP/s %6.1f%% of the limit\n",
              std::string(dtype_info(type).name).c_str(), head_dim, work / seconds * 1e-9,
              work / seconds * 1e-7 / limit);
}

}  // namespace

int main(int count, char** words) {
  const Kernels& kernels = count > 1 ? kernels_by_name(words[1]) : best_kernels();
  ThreadPool pool(1);
  volatile float sink = 0.0f;
  const std::int64_t rounds = 20000;
  const double seconds = best_of([&] { sink = kernels.attend.probe_pairs(rounds); });
  const double limit = static_cast<double>(kernels.attend.probe_flop * rounds) / seconds * 1e-9;
  std::printf("%s: the limit of bf16 products on one thread is %.0f GFLOP/s\n", kernels.isa, limit);
  for (const DType type : {DType::f16, DType::q8_0, DType::q4_0})
    for (const auto& [head_dim, heads] : {std::pair{64, 4}, {80, 4}, {128, 4}, {256, 4}})
      if (head_dim % 32 == 0 || type == DType::f16) measure(kernels, pool, type, head_dim, heads, limit);
}
