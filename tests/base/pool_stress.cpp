// Makes and destroys thread pools in a loop: `make stress` runs several of these beside one another.
//
//   pool_stress POOLS    ends with status 1 when a loop lost an index
//
// A wake-up that is lost costs 200 ms (base/futex.h), so that many make it slow. They do not make it hang.
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "base/thread_pool.h"

int main(int count, char** arguments) {
  const long pools = count == 2 ? std::strtol(arguments[1], nullptr, 10) : 0;
  if (pools < 1) {
    std::fputs("usage: pool_stress POOLS\n", stderr);
    return 2;
  }
  for (long i = 0; i < pools; ++i) {
    std::atomic<int> calls{0};
    kvtide::ThreadPool pool(4, 4);
    if (i % 3 != 0) continue;
    pool.run(7, [&](std::int64_t) { calls.fetch_add(1); });
    if (calls.load() == 7) continue;
    std::fprintf(stderr, "pool_stress: pool %ld ran %d of 7 indices\n", i, calls.load());
    return 1;
  }
}
