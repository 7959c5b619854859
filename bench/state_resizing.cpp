// What resizing and forking a live KV state of SmolLM2-135M's shape costs, in time and in memory.
//
//   bench_state_resizing [JSON file]
//
// Beside every step: what a program pays that keeps dense arrays and makes a larger one, with the same rows
// in use. Every number is a median over rounds in which both take turns.
#include <cstring>

#include "base/buffer.h"
#include "bench/live_state.h"
#include "bench/report.h"

namespace {

using namespace kvtide;
using namespace kvtide::bench;

// A new array of twice the size, and the rows moved over: [60][3][capacity][64] f16.
double copy_approach(const KvState& state, std::int64_t from, std::int64_t to) {
  const std::int64_t blocks = 2 * kLayers * kHeads, row = kHeadDim * 2;
  std::vector<std::byte> source(static_cast<std::size_t>(blocks * from * row), std::byte{1});
  return seconds([&] {
    std::vector<std::byte> target(static_cast<std::size_t>(blocks * to * row));
    for (std::int64_t block = 0; block < blocks; ++block)
      std::memcpy(target.data() + block * to * row, source.data() + block * from * row,
                  static_cast<std::size_t>(state.rows() * row));
    asm volatile("" : : "r"(target.data()) : "memory");  // nobody reads it, and it must be made all the same
  });
}

void growing(Report& report) {
  constexpr int kRounds = 7;
  std::vector<std::vector<double>> expands(7), copies(7);
  double largest_peak = 0;
  for (int round = 0; round < kRounds; ++round) {
    KvState state = smollm2_state(256);
    for (std::size_t step = 0; step < expands.size(); ++step) {
      const std::int64_t from = std::int64_t{256} << step;
      fill(state, from * 200 / 256);
      const std::int64_t before = resident();
      expands[step].push_back(1e6 * seconds([&] { state.apply(Expand{2 * from}); }));
      largest_peak = std::max(largest_peak, static_cast<double>(resident() - before) / 1024);
      copies[step].push_back(1e6 * copy_approach(state, from, 2 * from));
    }
  }
  for (std::size_t step = 0; step < expands.size(); ++step) {
    const std::string name = std::to_string(256 << step) + " -> " + std::to_string(512 << step);
    report.at_most("expand " + name, median(expands[step]), "us", 50);
    report.add("  a new array and a copy", median(copies[step]), "us");
  }
  report.at_most("memory that any expand took", largest_peak, "KiB", 64);
}

void shrinking(Report& report) {
  for (const std::int64_t rows : {4096, 8192, 16384, 32768}) {
    KvState state = smollm2_state(2 * rows);
    fill(state, 2 * rows);
    const std::int64_t before = resident(), held = state.held_bytes();
    double spent = seconds([&] {
      state.apply(Truncate{rows});
      state.apply(Compact{rows});
    });
    const auto freed = static_cast<double>(held - state.held_bytes());
    report.add("truncate and compact " + std::to_string(2 * rows) + " -> " + std::to_string(rows) + " rows",
               1e3 * spent, "ms");
    report.at_least("  resident memory that it gave back, of the bytes freed",
                    100 * static_cast<double>(before - resident()) / freed, "%", 95);
  }
}

void forking(Report& report) {
  constexpr int kRounds = 15;
  KvState state = smollm2_state(32768);
  fill(state, 30000);
  std::vector<double> times, first_tokens, bytes, token_bytes;
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t before = resident();
    const auto start = std::chrono::steady_clock::now();
    KvState fork = state.fork();
    times.push_back(1e3 * seconds_since(start));
    const std::int64_t after = resident();
    bytes.push_back(static_cast<double>(after - before) / (1 << 20));
    first_tokens.push_back(1e3 * seconds([&] { fill(fork, 30001); }));
    token_bytes.push_back(static_cast<double>(resident() - after) / (1 << 20));
  }
  report.at_most("fork at 30,000 tokens", median(times), "ms", 1);
  report.at_most("  memory that it took", median(bytes), "MiB", 1);
  report.add("  the first token after it", median(first_tokens), "ms");
  report.add("  memory that this took", median(token_bytes), "MiB");
}

}  // namespace

int main(int argc, char** argv) {
  Report report("a live state of 30 layers, 3 KV heads of 64, f16 (" + std::to_string(kTokenBytes) +
                " bytes a token)");
  growing(report);
  shrinking(report);
  forking(report);
  return report.print(argc > 1 ? argv[1] : nullptr);
}
