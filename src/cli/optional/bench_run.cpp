#include "cli/optional/bench_run.h"

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
  fill(session_, what.depth);
  const PassTimes before = session_.times();
  const std::uint64_t hash = what.reads          ? read_once(what, seconds)
                             : what.sessions > 1 ? write_together(what, seconds)
                                                 : write_once(what, seconds);
  times_ = session_.times() - before;
  return hash;
}

void BenchRun::fill(Session& session, std::int64_t depth) {
  session.clear();
  Progress progress("filling", session);
  ReadOptions fill;
  fill.need_logits = false;
  fill.progress = [&](std::int64_t done) {
    progress.update(done, depth);
    return !interrupted();
  };
  session.read(part(0, depth), fill);
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

// Every session has read the same text for itself, and writes it on in the same step as the others.
std::uint64_t BenchRun::write_together(const BenchCase& what, std::vector<double>& seconds) {
  SessionOptions options = session_.options();
  while (static_cast<int>(others_.size()) + 1 < what.sessions) others_.emplace_back(model_, options);
  if (!batch_) batch_.emplace(model_, BatchOptions{options.threads, what.sessions, options.kernels});
  for (Session& other : others_) fill(other, what.depth);
  double spent = 0.0;
  std::uint64_t hash = 0;
  for (std::int64_t i = 0; i < what.n; ++i) {
    stop_if_interrupted("bench: stopped; nothing is kept");
    std::vector<Batch::Item> items = {{&session_, part(what.depth + i, 1)}};
    for (Session& other : others_) items.push_back({&other, part(what.depth + i, 1)});
    const Stopwatch watch;
    const std::vector<Batch::Outcome> outcomes = batch_->step(items);
    spent += watch.seconds();
    for (const Batch::Outcome& outcome : outcomes)
      if (outcome.error) throw *outcome.error;
    const std::uint64_t before = hash;
    hash = hash_logits(session_.logits(), before);
    for (const Session& other : others_)
      if (hash_logits(other.logits(), before) != hash)
        throw Error(ErrorCode::numeric,
                    "bench: two sessions of one text gave different logits; this is a bug");
  }
  seconds.push_back(spent);
  return hash;
}

}  // namespace kvtide
