// What growing and shrinking a dense KV array costs, as a share of what this machine can copy.
//
//   bench_state_transition [MiB of the source] [repetitions] [JSON file]
//
// The limit is the best of two plain copies of the same bytes with all threads: memcpy, and streaming stores.
// Runs are interleaved and medians quoted, because the speed of a shared machine drifts.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "bench/report.h"
#include "kvtide/state_transition.h"
#include "state/arrays/dense.h"

namespace {

using namespace kvtide;
using kvtide::bench::median;
using kvtide::bench::seconds;

struct Line {
  std::string name;
  std::int64_t bytes;  // read and written
  std::function<void()> work;
  std::vector<double> times = {};
};

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t mib = argc > 1 ? std::atoll(argv[1]) : 256;
  const int repetitions = argc > 2 ? std::atoi(argv[2]) : 15;
  if (mib < 1 || mib > 65536 || repetitions < 1) {
    std::fprintf(stderr, "usage: bench_state_transition [MiB of the source, 1 to 65536] [repetitions]\n");
    return 2;
  }
  // [36][1][seq][256] f16, the unified state of Gemma-3-270M, with a sequence that gives the size asked for.
  const std::int64_t seq = std::max<std::int64_t>(2, (mib << 20) / (36 * 256 * 2));
  const std::vector<std::int64_t> small{36, 1, seq, 256}, large{36, 1, 2 * seq, 256};
  const std::int64_t size = 36 * seq * 256 * 2;
  Buffer small_memory(static_cast<std::size_t>(size)), large_memory(static_cast<std::size_t>(2 * size));
  Buffer other_memory(static_cast<std::size_t>(size));
  std::memset(small_memory.data(), 1, small_memory.size());
  std::memset(large_memory.data(), 2, large_memory.size());
  std::memset(other_memory.data(), 3, other_memory.size());
  const std::span<std::byte> source{small_memory.data(), small_memory.size()};
  const std::span<std::byte> target{large_memory.data(), large_memory.size()};
  const std::span<std::byte> other{other_memory.data(), other_memory.size()};

  const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  ThreadPool pool(threads);
  const std::vector<std::byte> pad(2);
  const std::int64_t part = size / threads;
  const Pos most = seq * 200 / 256;
  std::vector<Line> lines;
  lines.push_back({"limit: memcpy", 2 * size, [&] {
                     pool.run(threads, [&](std::int64_t i) {
                       const std::int64_t end = i + 1 == threads ? size : (i + 1) * part;
                       std::memcpy(other.data() + i * part, source.data() + i * part,
                                   static_cast<std::size_t>(end - i * part));
                     });
                   }});
  lines.push_back({"limit: streaming copy", 2 * size, [&] {
                     run({.source = source.data(),
                          .target = other.data(),
                          .blocks = 1,
                          .source_block = size,
                          .target_block = size,
                          .kept = size,
                          .pad = pad},
                         pool);
                   }});
  lines.push_back({"transition x2, all in use", 3 * size, [&] {
                     transition({source, small}, {target, large}, seq);
                   }});
  lines.push_back({"transition x2, 200/256 in use", 2 * size + 36 * most * 512, [&] {
                     transition({source, small}, {target, large}, most);
                   }});
  lines.push_back({"transition, same size, 200/256", size + 36 * most * 512, [&] {
                     transition({source, small}, {other, small}, most);
                   }});
  lines.push_back({"compact /2, all of it in use", 2 * size, [&] {
                     compact({target, large}, {source, small}, seq);
                   }});
  for (int i = 0; i < repetitions; ++i)
    for (Line& line : lines) line.times.push_back(seconds(line.work));

  // A limit is bytes per second of a copy that reads as much as it writes, which is what the arrays do at
  // most.
  const auto speed = [](const Line& line) {
    return static_cast<double>(line.bytes) / median(line.times) / 1e9;
  };
  const double limit = std::max(speed(lines[0]), speed(lines[1]));
  bench::Report report("dense arrays of " + std::to_string(size >> 20) + " MiB, " + std::to_string(threads) +
                       " threads, median of " + std::to_string(repetitions));
  for (const Line& line : lines) {
    report.add(line.name, speed(line), "GB/s");
    if (!line.name.starts_with("limit"))
      report.at_least("  of the copy limit", 100 * speed(line) / limit, "%", 80);
  }
  return report.print(argc > 3 ? argv[3] : nullptr);
}
