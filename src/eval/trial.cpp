#include "eval/trial.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/stopwatch.h"
#include "kvtide/error.h"
#include "kvtide/generate.h"

namespace kvtide {
namespace {

constexpr double kReadingShare = 0.9;  // of the progress

struct Sample {
  Pos tokens;
  std::int64_t kv, rss;
};

}  // namespace

double distinct_runs(std::span<const TokenId> tokens, std::size_t n) {
  if (tokens.size() < n || n == 0) return 1.0;
  std::set<std::vector<TokenId>> seen;
  for (std::size_t i = 0; i + n <= tokens.size(); ++i)
    seen.emplace(tokens.begin() + static_cast<std::ptrdiff_t>(i),
                 tokens.begin() + static_cast<std::ptrdiff_t>(i + n));
  return static_cast<double>(seen.size()) / static_cast<double>(tokens.size() - n + 1);
}

Trial try_memory(Session& session, std::span<const TokenId> text, const TrialOptions& o) {
  const auto count = static_cast<std::int64_t>(text.size());
  if (count < 1) throw Error(ErrorCode::invalid_argument, "a memory cannot be tried without a text");
  const auto go_on = [&](double share) {
    if (o.progress && !o.progress(share)) throw Error(ErrorCode::cancelled, "the trial was stopped");
  };
  session.clear();
  std::vector<Sample> samples;
  const auto sample = [&](Pos tokens) {
    samples.push_back({tokens, session.memory().kv, o.resident ? o.resident() : 0});
  };
  ReadOptions read;
  read.progress = [&](std::int64_t done) {
    sample(done);
    return !o.progress || o.progress(kReadingShare * static_cast<double>(done) / static_cast<double>(count));
  };
  Trial trial;
  const Stopwatch reading;
  session.read(text, read);
  const std::size_t of_reading = samples.size();
  trial.prefill_tok_s = static_cast<double>(count) / reading.seconds();
  if (const auto counts = session.procedural_counts())
    trial.seal_ms_token = 1e3 * counts->seal_seconds / static_cast<double>(count);

  std::vector<TokenId> written;
  Sampler sampler({});
  double spent = 0.0;
  while (static_cast<std::int64_t>(written.size()) < o.continuation) {
    const Stopwatch writing;
    written.push_back(sampler.pick(session.logits(), {}));
    session.read({&written.back(), 1});
    spent += writing.seconds();
    if (written.size() % 16 == 0) {
      sample(count + static_cast<Pos>(written.size()));
      go_on(kReadingShare + (1.0 - kReadingShare) * static_cast<double>(written.size()) /
                                static_cast<double>(o.continuation));
    }
  }
  if (spent > 0.0) trial.decode_tok_s = static_cast<double>(written.size()) / spent;
  trial.distinct_1 = distinct_runs(written, 1);
  trial.distinct_3 = distinct_runs(written, 3);

  for (const Sample& s : samples) trial.kv_peak = std::max(trial.kv_peak, s.kv);
  // Steps of one token hold fewer rows in flight than those of reading: that is no unrest.
  const auto end = samples.begin() + static_cast<std::ptrdiff_t>(of_reading);
  const auto filled = std::find_if(samples.begin(), end - 1,
                                   [&](const Sample& s) { return s.kv * 20 >= trial.kv_peak * 19; });
  const auto [low, high] =
      std::minmax_element(filled, end, [](const Sample& a, const Sample& b) { return a.rss < b.rss; });
  trial.filled_at = filled->tokens;
  trial.rss_swing = high->rss - low->rss;
  trial.kv_bytes = session.memory().kv;
  trial.rss_bytes = samples.back().rss;
  if (const auto counts = session.procedural_counts())
    trial.kv_peak = std::max(trial.kv_peak, counts->bytes_peak);
  return trial;
}

}  // namespace kvtide
