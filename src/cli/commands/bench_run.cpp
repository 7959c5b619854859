#include "cli/commands/bench_run.h"

#include <algorithm>

#include "base/stopwatch.h"
#include "base/text.h"
#include "cli/commands/interrupt.h"
#include "cli/output/memory_reading.h"
#include "cli/output/progress.h"
#include "cli/output/report.h"
#include "kvtide/error.h"

namespace kvtide {

void BenchRun::warm_up() {
  session_.clear();
  session_.read(part(0, 1));
}

BenchResult BenchRun::measure(const BenchCase& what) {
  std::vector<double> seconds;
  BenchResult result;
  for (int i = 0; i < arguments_.repetitions; ++i) {
    const std::uint64_t hash = once(what, seconds);
    if (i > 0 && hash != result.hash)
      throw Error(ErrorCode::numeric,
                  cat("bench: two runs of the same text gave different logits (hash ", hash_text(result.hash),
                      " and ", hash_text(hash), "); this is a bug"));
    result.hash = hash;
  }
  std::sort(seconds.begin(), seconds.end());
  const std::size_t middle = seconds.size() / 2;
  result.seconds = seconds.size() % 2 == 1 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2.0;
  result.times = times_;
  result.kv_bytes = session_.memory().kv;
  result.rss_bytes = read_memory().rss;
  return result;
}

PassWork BenchRun::work_of(const BenchCase& what) const {
  if (what.reads) return work_of_reading(model_, session_.options(), what.depth, what.n);
  PassWork work;
  for (std::int64_t i = 0; i < what.n; ++i)
    work += work_of_pass(model_, session_.options(), what.depth + i, 1, 1);
  return work;
}

std::span<const TokenId> BenchRun::part(std::int64_t first, std::int64_t count) const {
  return std::span(tokens_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

std::uint64_t BenchRun::once(const BenchCase& what, std::vector<double>& seconds) {
  session_.clear();
  {
    Progress progress("filling", session_);
    ReadOptions fill;
    fill.need_logits = false;
    fill.progress = [&](std::int64_t done) {
      progress.update(done, what.depth);
      return !interrupted();
    };
    session_.read(part(0, what.depth), fill);
  }
  const PassTimes before = session_.times();
  const std::uint64_t hash = what.reads ? read_once(what, seconds) : write_once(what, seconds);
  times_ = session_.times() - before;
  return hash;
}

std::uint64_t BenchRun::read_once(const BenchCase& what, std::vector<double>& seconds) {
  ReadOptions read;
  read.progress = [](std::int64_t) { return !interrupted(); };
  const Stopwatch watch;
  session_.read(part(what.depth, what.n), read);
  seconds.push_back(watch.seconds());
  return hash_logits(session_.logits());
}

std::uint64_t BenchRun::write_once(const BenchCase& what, std::vector<double>& seconds) {
  double spent = 0.0;
  std::uint64_t hash = 0;
  for (std::int64_t i = 0; i < what.n; ++i) {
    stop_if_interrupted("bench: stopped; nothing is kept");
    const Stopwatch watch;
    session_.read(part(what.depth + i, 1));
    spent += watch.seconds();
    hash = hash_logits(session_.logits(), hash);
  }
  seconds.push_back(spent);
  return hash;
}

}  // namespace kvtide
