// What share of the processor's bf16 products attention reaches while it reads, by head and by type of rows, and what a row
// costs while it writes. On one thread: the best of many short rounds, so that other work on the machine counts little.
//
//   bench_attend [KERNELS [TYPE]]
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

// A chunk of tokens, `heads` query heads for each of `kv_heads`, behind rows that all of them see. Seconds.
double measure(const Kernels& kernels, ThreadPool& pool, DType type, int head_dim, int heads, int kv_heads,
               std::int64_t tokens, std::int64_t rows) {
  const std::int64_t stride = bytes_of(type, head_dim), bytes = rows * stride;
  const std::vector<std::byte> one = encoded(type, rows * head_dim);
  std::vector<std::byte> keys, values;
  for (int head = 0; head < kv_heads; ++head) keys.insert(keys.end(), one.begin(), one.end());
  values = keys;
  const std::vector<float> q = made_up(tokens * kv_heads * heads * head_dim);
  std::vector<float> out(q.size());
  std::vector<std::vector<Span>> spans;
  for (int head = 0; head < kv_heads; ++head) {
    Span span;
    span.keys = keys.data() + head * bytes;
    span.values = values.data() + head * bytes;
    span.key_type = span.value_type = type;
    span.key_stride = span.value_stride = stride;
    span.rows = rows;
    span.first = 0;
    spans.push_back({span});
  }
  AttendShape shape;
  shape.first = rows;
  shape.tokens = tokens;
  shape.heads = kv_heads * heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  shape.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  shape.bf16 = true;
  const ViewPoint plain[1] = {};
  const float* const queries[] = {q.data()};
  const AttendInput input{shape, plain, queries, spans};
  return best_of([&] { attend(pool, kernels.attend, input, out.data(), nullptr); });
}

void measure_reading(const Kernels& kernels, ThreadPool& pool, DType type, int head_dim, double limit) {
  constexpr int kHeads = 4;
  constexpr std::int64_t kTokens = 128 / kHeads, kRows = 2048;
  const double seconds = measure(kernels, pool, type, head_dim, kHeads, 1, kTokens, kRows);
  const double work = 4.0 * static_cast<double>(kTokens * kHeads * head_dim * kRows);
  std::printf("reading, %-5s heads of %3d %8.0f GFLOP/s %6.1f%% of the limit\n",
              std::string(dtype_info(type).name).c_str(), head_dim, work / seconds * 1e-9,
              work / seconds * 1e-7 / limit);
}

// One token: rows that the second cache holds, and rows that come from memory.
void measure_writing(const Kernels& kernels, ThreadPool& pool, DType type, int head_dim, int heads) {
  constexpr std::int64_t kNear = 1024, kFar = 8192, kFarBytes = 256 << 20;
  const std::int64_t row = 2 * bytes_of(type, head_dim);
  const auto many = static_cast<int>(kFarBytes / (kFar * row));
  const double near = measure(kernels, pool, type, head_dim, heads, 1, 1, kNear) / kNear;
  const double far =
      measure(kernels, pool, type, head_dim, heads, many, 1, kFar) / static_cast<double>(kFar * many);
  std::printf(
      "writing, %-5s heads of %3d, %d for each row: %5.1f ns a row from the cache, %5.1f from memory (%.1f "
      "GB/s)\n",
      std::string(dtype_info(type).name).c_str(), head_dim, heads, near * 1e9, far * 1e9,
      static_cast<double>(row) / far * 1e-9);
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
  std::vector<DType> types;
  for (const DType type : {DType::f16, DType::q8_0, DType::q4_0})
    if (count < 3 || dtype_info(type).name == words[2]) types.push_back(type);
  for (const DType type : types)
    for (const int head_dim : {64, 80, 128, 256})
      if (head_dim % 32 == 0 || type == DType::f16) measure_reading(kernels, pool, type, head_dim, limit);
  for (const DType type : types)
    for (const auto& [head_dim, heads] : {std::pair{64, 3}, {64, 8}, {128, 4}, {128, 8}, {256, 4}})
      measure_writing(kernels, pool, type, head_dim, heads);
}
