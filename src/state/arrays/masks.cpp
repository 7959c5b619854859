#include "kvtide/masks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/out_of_memory.h"
#include "base/refuse.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "state/arrange.h"

namespace kvtide {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 32;

// The rule itself: what the engine's attention asks, too.
std::vector<VisibleRun> seen_by(Pos query, std::optional<std::int64_t> attention_size, std::int64_t sinks) {
  Visibility visible;
  visible.window = attention_size;
  visible.sinks = sinks;
  return visible_runs({{0, query + 1, 0}}, visible, query);
}

void check_attention_size(std::optional<std::int64_t> size) {
  if (size && *size < 1) refuse(cat("an attention size of ", *size, " sees nothing; at least 1 is needed"));
}

std::int64_t real_tokens(const ChunkMask& chunk) {
  if (chunk.first < 0 || chunk.tokens < 1 || chunk.rows < 1 || chunk.sinks < 0)
    refuse(cat("a mask of ", chunk.tokens, " tokens from position ", chunk.first, " on over ", chunk.rows,
               " rows with ", chunk.sinks, " sinks makes no sense"));
  if (chunk.tokens > kMostElements / chunk.rows)
    refuse(cat("a mask of ", chunk.tokens, " by ", chunk.rows, " elements is too large"));
  check_attention_size(chunk.attention_size);
  const std::int64_t real = chunk.real.value_or(chunk.tokens);
  if (real < 0 || real > chunk.tokens) refuse(cat(real, " real tokens in a chunk of ", chunk.tokens));
  if (real > chunk.rows - chunk.first)
    refuse(cat("positions ", chunk.first, " to ", chunk.first + real, " do not fit ", chunk.rows, " rows"));
  return real;
}

std::vector<float> filled(std::int64_t a, std::int64_t b, float with) {
  return std::vector<float>(static_cast<std::size_t>(a * b), with);
}

void show(std::vector<float>& mask, std::int64_t row, std::int64_t length,
          const std::vector<VisibleRun>& runs) {
  for (const VisibleRun& run : runs)
    std::fill_n(mask.begin() + row * length + run.rows.first, run.rows.last - run.rows.first, 0.0f);
}

}  // namespace

bool sees(Pos query, Pos position, std::optional<std::int64_t> attention_size, std::int64_t sinks) try {
  const auto runs = seen_by(query, attention_size, sinks);
  return std::any_of(runs.begin(), runs.end(), [&](const VisibleRun& run) {
    return position >= run.rows.first && position < run.rows.last;
  });
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::vector<float> attention_mask(const ChunkMask& chunk, float hidden) try {
  const std::int64_t real = real_tokens(chunk);
  if (!(hidden < 0.0f) || !std::isfinite(hidden))
    refuse(cat("a hidden row needs a finite number below 0, not ", hidden));
  std::vector<float> mask = filled(chunk.tokens, chunk.rows, hidden);
  for (std::int64_t t = 0; t < real; ++t)
    show(mask, t, chunk.rows, seen_by(chunk.first + t, chunk.attention_size, chunk.sinks));
  return mask;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::vector<float> write_mask(const ChunkMask& chunk) try {
  const std::int64_t real = real_tokens(chunk);
  std::vector<float> mask = filled(chunk.rows, chunk.tokens, 0.0f);
  for (std::int64_t t = 0; t < real; ++t)
    mask[static_cast<std::size_t>((chunk.first + t) * chunk.tokens + t)] = 1.0f;
  return mask;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::vector<float> attention_size_mask(std::int64_t length, std::int64_t attention_size, Pos position) try {
  if (length < 1 || length > 65536) refuse(cat("a length of ", length, " is not between 1 and 65536"));
  check_attention_size(attention_size);
  if (position < 0 || position > length)
    refuse(cat("current_position (", position, ") is not between 0 and the length (", length, ")"));
  std::vector<float> mask = filled(length, length, -std::numeric_limits<float>::infinity());
  for (Pos query = 0; query < std::min(length, position + 1); ++query)
    show(mask, query, length, seen_by(query, attention_size, 0));
  return mask;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
