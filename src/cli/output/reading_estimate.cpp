#include "cli/output/reading_estimate.h"

#include <algorithm>
#include <limits>

#include "cli/output/kv_cost.h"
#include "cli/output/session_words.h"
#include "eval/plan.h"
#include "model/loaded_model.h"

namespace kvtide {
namespace {

// One operation of attention takes about as long as so many 8-bit ones of the matrices, the output matrix counted
// with them (docs/performance.md: 2.5 for SmolLM2, 2.9 for Gemma).
constexpr double kAttentionCost = 2.7;
// Old rows take about half of the bytes of exact ones.
constexpr double kRowsPerByte = 1.5;

// Rows that one layer sees at most, whatever the text.
double most_rows(const Session& session) {
  const SessionOptions& options = session.options();
  double most = std::numeric_limits<double>::infinity();
  if (options.rolling) most = static_cast<double>(most_held(session));
  if (const auto size = session.attention_size()) most = std::min(most, static_cast<double>(*size));
  const auto plan = session.procedural_plan();
  if (const auto row = static_cast<double>(full_cache_bytes(session, 1)); plan && !plan->grows && row > 0.0)
    most = std::min(most, kRowsPerByte * static_cast<double>(plan->total()) / row);
  return most;
}

// The sum of min(p, cap) over p from 0 to `end`.
double rows_until(double end, double cap) {
  return end <= cap ? end * end / 2.0 : cap * cap / 2.0 + (end - cap) * cap;
}

}  // namespace

ReadingEstimate::ReadingEstimate(const Session& session) : first_(static_cast<double>(session.rows())) {
  const ModelConfig& config = session.model().internals().config;
  const double most = most_rows(session);
  for (const LayerConfig& layer : config.layers)
    if (layer.mixer == Mixer::attention)
      caps_.push_back(layer.window ? std::min(most, static_cast<double>(*layer.window)) : most);
  const double row = 4.0 * config.heads * config.head_dim * static_cast<double>(caps_.size());
  equal_rows_ = row > 0.0 ? 2.0 * matrix_elements(config) / (kAttentionCost * row) : 0.0;
}

double ReadingEstimate::work(std::int64_t tokens) const {
  const auto count = static_cast<double>(tokens);
  if (equal_rows_ <= 0.0 || caps_.empty()) return count;
  double rows = 0.0;
  for (const double cap : caps_) rows += rows_until(first_ + count, cap) - rows_until(first_, cap);
  return count + rows / (static_cast<double>(caps_.size()) * equal_rows_);
}

std::optional<double> ReadingEstimate::left(std::int64_t done, std::int64_t total, double seconds) {
  if (done < 1 || seconds <= 0.0) return std::nullopt;
  const double now = work(done);
  // The newer half of the time tells best how fast it goes on.
  const auto half = std::find_if(samples_.rbegin(), samples_.rend(),
                                 [&](const Sample& sample) { return sample.seconds <= seconds / 2.0; });
  const Sample from = half == samples_.rend() ? Sample{} : *half;
  if (now > samples_.back().work) samples_.push_back({seconds, now});
  if (now <= from.work) return std::nullopt;
  return (work(total) - now) * (seconds - from.seconds) / (now - from.work);
}

}  // namespace kvtide
