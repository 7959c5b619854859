#include "validate/runs.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "base/text.h"

namespace kvtide {

std::int64_t Schedule::tokens() const { return std::accumulate(calls.begin(), calls.end(), std::int64_t{0}); }

std::vector<Pos> Schedule::starts() const {
  std::vector<Pos> out = {0};
  for (const std::int64_t call : calls) out.push_back(out.back() + call);
  return out;
}

std::int64_t Schedule::longest() const { return *std::max_element(calls.begin(), calls.end()); }

Schedule calls_of(std::int64_t chunk, std::int64_t tokens) {
  Schedule out{cat("calls of ", chunk), {}};
  // A tail of another length: what is right for whole chunks may not be for it.
  if (chunk > 1 && tokens > chunk && tokens % chunk == 0) --tokens;
  for (; tokens > 0; tokens -= out.calls.back()) out.calls.push_back(std::min(chunk, tokens));
  return out;
}

Schedule mixed_calls(std::int64_t largest_chunk, std::int64_t tokens) {
  Schedule out{"calls of mixed lengths", {}};
  constexpr std::int64_t kLengths[] = {5, 1, 8, 2, 1, 13, 3, 6, 40, 1, 64, 7, 100, 1, 1, 17};
  const std::size_t lengths = tokens > 128 ? std::size(kLengths) : 8;
  for (std::size_t i = 0; tokens > 0; ++i, tokens -= out.calls.back()) {
    const std::int64_t length = std::min(kLengths[i % lengths], tokens);
    out.calls.push_back(largest_chunk > 0 ? std::min(largest_chunk, length) : length);
  }
  return out;
}

Schedule prompt_and_steps(std::int64_t largest_chunk, std::int64_t tokens) {
  Schedule out{cat("a prompt of ", tokens / 2, ", then calls of 1"), {}};
  for (std::int64_t left = tokens / 2; left > 0; left -= out.calls.back())
    out.calls.push_back(largest_chunk > 0 ? std::min(largest_chunk, left) : left);
  for (std::int64_t left = tokens - tokens / 2; left > 0; --left) out.calls.push_back(1);
  return out;
}

namespace {

void require_shape(const TestedShape& shape, const Reading& reading, std::int64_t count) {
  const auto hidden =
      static_cast<std::size_t>((static_cast<std::int64_t>(shape.layers.size()) + 1) * count * shape.width);
  if (shape.gives_hidden && reading.hidden.size() != hidden)
    throw Error(ErrorCode::invalid_argument,
                cat("the model gave ", reading.hidden.size(), " numbers of its residual stream for ", count,
                    " tokens; [", shape.layers.size() + 1, ", ", count, ", ", shape.width, "] are expected"));
  const auto vocab = static_cast<std::size_t>(shape.vocab);
  if (reading.logits.size() != vocab && reading.logits.size() != vocab * static_cast<std::size_t>(count))
    throw Error(ErrorCode::invalid_argument,
                cat("the model gave ", reading.logits.size(), " logits for ", count, " tokens; [", count,
                    ", ", vocab, "] are expected, or [", vocab, "] for the last"));
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

}  // namespace

Run run_on(TestedModel& model, TestedState& state, std::span<const TokenId> tokens, const Schedule& schedule,
           const RunOptions& options, Pos from) {
  const TestedShape shape = model.shape();
  const auto layers = static_cast<std::int64_t>(shape.layers.size());
  const std::int64_t all = schedule.tokens(), width = shape.width;
  Run out;
  out.schedule = schedule;
  std::vector<std::vector<float>> parts(static_cast<std::size_t>(layers) + 1);
  for (const std::int64_t count : schedule.calls) {
    std::vector<float> inputs;
    if (options.feed != nullptr)
      for (std::int64_t layer = 0; layer < layers; ++layer) {
        const auto first = options.feed->stream(layer, from + out.tokens);
        inputs.insert(inputs.end(), first.data(), first.data() + count * width);
      }
    Reading reading;
    try {
      reading = model.read(
          state, tokens.subspan(static_cast<std::size_t>(out.tokens), static_cast<std::size_t>(count)),
          inputs);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::cancelled || error.code() == ErrorCode::out_of_memory) throw;
      out.refusal = error.message();
      break;
    }
    require_shape(shape, reading, count);
    out.finite = out.finite && all_finite(reading.logits) && all_finite(reading.hidden);
    if (shape.gives_hidden)
      for (std::int64_t layer = 0; layer <= layers; ++layer) {
        const auto first = reading.hidden.begin() + layer * count * width;
        auto& part = parts[static_cast<std::size_t>(layer)];
        part.insert(part.end(), first, first + count * width);
      }
    out.tokens += count;
    if (!options.want_logits) continue;
    const Pos first = from + out.tokens - count;
    const bool last_only = static_cast<std::int64_t>(reading.logits.size()) == shape.vocab;
    for (Pos t = last_only ? count - 1 : 0; t < count; ++t) out.known.push_back(first + t);
    if (out.logits.empty()) out.logits.reserve(static_cast<std::size_t>(all * shape.vocab));
    out.logits.insert(out.logits.end(), reading.logits.begin(), reading.logits.end());
  }
  for (const auto& part : parts) out.hidden.insert(out.hidden.end(), part.begin(), part.end());
  if (shape.gives_rows && options.want_rows && out.tokens > 0)
    for (int layer = 0; layer < static_cast<int>(layers); ++layer)
      out.rows.push_back(model.rows(state, layer));
  return out;
}

Run joined(const Run& first, const Run& second, std::int64_t layers, std::int64_t width) {
  Run out = second;
  out.tokens = first.tokens + second.tokens;
  out.known.insert(out.known.begin(), first.known.begin(), first.known.end());
  out.logits.insert(out.logits.begin(), first.logits.begin(), first.logits.end());
  out.hidden.clear();
  for (std::int64_t layer = 0; layer <= layers && !second.hidden.empty(); ++layer)
    for (const Run* part : {&first, &second}) {
      const auto begin = part->hidden.begin() + layer * part->tokens * width;
      out.hidden.insert(out.hidden.end(), begin, begin + part->tokens * width);
    }
  return out;
}

namespace {

bool same_rows(const HeldRows& a, const HeldRows& b) {
  if (a.kv_heads != b.kv_heads || a.head_dim != b.head_dim) return false;
  const Pos first = std::max(a.first, b.first), last = std::min(a.first + a.rows, b.first + b.rows);
  for (std::int64_t head = 0; head < a.kv_heads; ++head)
    for (Pos t = first; t < last; ++t)
      if (!std::ranges::equal(a.key(head, t), b.key(head, t)) ||
          !std::ranges::equal(a.value(head, t), b.value(head, t)))
        return false;
  return true;
}

HeldRows first_rows(const HeldRows& rows, std::int64_t count) {
  HeldRows out{rows.kv_heads, count, rows.head_dim, 0, {}, {}};
  for (std::int64_t head = 0; head < rows.kv_heads; ++head)
    for (const auto& [from, to] : {std::pair(&rows.keys, &out.keys), std::pair(&rows.values, &out.values)}) {
      const auto begin = from->begin() + head * rows.rows * rows.head_dim;
      to->insert(to->end(), begin, begin + count * rows.head_dim);
    }
  return out;
}

}  // namespace

bool same_bits(const Run& a, const Run& b, const TestedShape& shape) {
  const std::int64_t tokens = std::min(a.tokens, b.tokens);
  if (!a.refusal.empty() || !b.refusal.empty() || tokens == 0 || a.rows.size() != b.rows.size()) return false;
  for (std::int64_t layer = 0; shape.gives_hidden && layer <= std::ssize(shape.layers); ++layer)
    for (Pos t = 0; t < tokens; ++t)
      if (!std::ranges::equal(a.stream(layer, t, shape.width), b.stream(layer, t, shape.width))) return false;
  const auto vocab = static_cast<std::size_t>(shape.vocab);
  for (std::size_t i = 0, j = 0; i < a.known.size() && j < b.known.size();) {
    if (a.known[i] != b.known[j]) {
      ++(a.known[i] < b.known[j] ? i : j);
    } else if (!std::ranges::equal(std::span(a.logits).subspan(i++ * vocab, vocab),
                                   std::span(b.logits).subspan(j++ * vocab, vocab))) {
      return false;
    }
  }
  return std::equal(a.rows.begin(), a.rows.end(), b.rows.begin(), same_rows);
}

std::optional<Run> cut_to(const Run& run, std::int64_t tokens, const TestedShape& shape) {
  if (tokens > run.tokens || !run.refusal.empty()) return std::nullopt;
  Run out = run;
  out.logits.clear();
  std::erase_if(out.known, [&](Pos token) { return token >= tokens; });
  if (tokens == run.tokens) return out;
  out.tokens = tokens;
  out.hidden.clear();
  for (std::int64_t layer = 0; layer <= std::ssize(shape.layers); ++layer) {
    const auto begin = run.hidden.begin() + layer * run.tokens * shape.width;
    out.hidden.insert(out.hidden.end(), begin, begin + tokens * shape.width);
  }
  for (HeldRows& rows : out.rows) {
    if (rows.first != 0 || rows.rows < tokens) return std::nullopt;
    rows = first_rows(rows, tokens);
  }
  return out;
}

Run run(TestedModel& model, std::span<const TokenId> tokens, const Schedule& schedule,
        const RunOptions& options) {
  const std::int64_t room = options.capacity > 0 ? options.capacity : schedule.tokens() + 8;
  const auto state = model.make_state(room);
  return run_on(model, *state, tokens, schedule, options, 0);
}

}  // namespace kvtide
