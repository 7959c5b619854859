#include "state/shadow.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/stopwatch.h"
#include "base/text.h"
#include "kernels/codec.h"
#include "kernels/hadamard.h"
#include "kvtide/error.h"
#include "state/procedural/far.h"
#include "state/procedural/stages.h"
#include "state/rows/row_rewriter.h"

namespace kvtide {
namespace {

constexpr std::size_t kTop = 16;     // rows whose overlap is measured
constexpr std::int64_t kScan = 256;  // rows decoded at a time

class Timer {
 public:
  explicit Timer(double& seconds) : seconds_(seconds) {}
  ~Timer() { seconds_ += watch_.seconds(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  double& seconds_;
  Stopwatch watch_;
};

void turn(float* key, const Span& span) {
  const float *cosine = span.rotation, *sine = span.rotation + span.rotation_pairs;
  for (std::int64_t i = 0; i < span.rotation_pairs; ++i) {
    const float a = key[i], b = key[span.rotation_pairs + i];
    key[i] = a * cosine[i] - b * sine[i];
    key[span.rotation_pairs + i] = b * cosine[i] + a * sine[i];
  }
}

// Positions of the rows with most attention, ascending, for each of the queries of one KV head at `position`.
template <class PositionOf>
std::vector<std::vector<Pos>> top_rows(const DenseRow& kernels, std::span<const Span> spans,
                                       const std::vector<std::vector<float>>& queries,
                                       const AttendShape& shape, const PositionOf& position_of) {
  const auto count = static_cast<std::int64_t>(queries.size());
  const std::int64_t dim = (shape.head_dim + 15) / 16 * 16;
  std::vector<float> q(static_cast<std::size_t>(count * dim), 0.0f), scores;
  for (std::int64_t i = 0; i < count; ++i)
    std::copy_n(queries[static_cast<std::size_t>(i)].begin(), shape.head_dim, q.begin() + i * dim);
  std::vector<std::vector<std::pair<float, Pos>>> best(queries.size());
  std::vector<float> keys(static_cast<std::size_t>(kScan * dim), 0.0f);
  for (const Span& span : spans)
    for (std::int64_t begin = 0; begin < span.rows; begin += kScan) {
      const std::int64_t rows = std::min(kScan, span.rows - begin), padded = (rows + 15) / 16 * 16;
      std::fill(keys.begin(), keys.end(), 0.0f);
      for (std::int64_t j = 0; j < rows; ++j) {
        decode_row(span.key_type, span.keys + (begin + j) * span.key_stride, shape.head_dim,
                   keys.data() + j * dim);
        if (span.mean_key != nullptr)
          for (int d = 0; d < shape.head_dim; ++d)
            keys[static_cast<std::size_t>(j * dim + d)] += span.mean_key[d];
        if (span.spread) hadamard(keys.data() + j * dim, shape.head_dim);
        if (span.rotation != nullptr) turn(keys.data() + j * dim, span);
      }
      scores.resize(static_cast<std::size_t>(count * padded));
      kernels.dots(q.data(), count, keys.data(), padded, dim, shape.scale, scores.data());
      for (std::int64_t j = 0; j < rows; ++j) {
        const Pos position = position_of(span, begin + j);
        if (position > shape.first) continue;
        if (span.first && !span.sink && shape.window && position <= shape.first - *shape.window) continue;
        for (std::int64_t i = 0; i < count; ++i) {
          const float mass = span.mass + (span.log_mass == nullptr ? 0.0f : span.log_mass[begin + j]);
          best[static_cast<std::size_t>(i)].emplace_back(
              -scores[static_cast<std::size_t>(i * padded + j)] - mass, position);
        }
      }
      for (auto& list : best) {
        const auto keep = static_cast<std::ptrdiff_t>(std::min(list.size(), kTop));
        std::partial_sort(list.begin(), list.begin() + keep, list.end());
        list.resize(static_cast<std::size_t>(keep));
      }
    }
  std::vector<std::vector<Pos>> top;
  for (const auto& list : best) {
    auto& positions = top.emplace_back();
    for (const auto& row : list) positions.push_back(row.second);
    std::sort(positions.begin(), positions.end());
  }
  return top;
}

double jaccard(const std::vector<Pos>& a, const std::vector<Pos>& b) {
  std::vector<Pos> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  const auto all = static_cast<double>(a.size() + b.size() - both.size());
  return all > 0.0 ? static_cast<double>(both.size()) / all : 1.0;
}

double relative_distance(const float* x, const float* truth, std::int64_t n) {
  double distance = 0.0, size = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    const double t = static_cast<double>(truth[i]), d = static_cast<double>(x[i]) - t;
    distance += d * d;
    size += t * t;
  }
  return std::sqrt(distance / std::max(size, 1e-30));
}

}  // namespace

Shadow::Shadow(const ShadowOptions& options, const KvState& state) : options_(options), shape_(state.spec()) {
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, "shadow mode: " + why);
  };
  if (state.past() == nullptr) refuse("there is no procedural memory to compare with");
  const auto layers = static_cast<int>(state.spec().layers.size());
  if (options_.every < 1) refuse(cat("a sample every ", options_.every, " tokens makes no sense"));
  if (options_.last_layer < 0) options_.last_layer = layers - 1;
  if (options_.first_layer < 0 || options_.first_layer > options_.last_layer || options_.last_layer >= layers)
    refuse(cat("there are layers 0-", layers - 1, ", not ", options_.first_layer, "-", options_.last_layer));
  for (int layer = options_.first_layer; layer <= options_.last_layer && first_compared_ < 0; ++layer)
    if (state.past()->holds(layer)) first_compared_ = layer;
  if (first_compared_ < 0) refuse("none of these layers is compressed");
  set_row_types(shape_, window_types(shape_));
  for (const LayerSpec& layer : shape_.layers) rows_.emplace_back(row_format(shape_, layer), kReservedRows);
  meter_.expect(rows_.size() * static_cast<std::size_t>(state.past()->spec().query_heads));
}

void Shadow::clear() {
  for (LayerRows& rows : rows_) rows.truncate(0);
  meter_.clear();
  copied_ = 0;
  tokens_ = 0;
  seconds_ = 0.0;
}

void Shadow::keep(const KvState& state) {
  if (state.is_settled()) return;
  const Timer timer(seconds_);
  const KvSpec& spec = state.spec();
  const bool rewritten = !has_row_types(spec, row_types_at(spec, state.position()));
  const Pos last = rewritten ? state.position() : state.position() - state.past()->spec().window;
  if (last <= copied_) return;
  for (int layer = options_.first_layer; layer <= options_.last_layer; ++layer) {
    if (!state.past()->holds(layer)) continue;
    LayerRows& to = rows_[static_cast<std::size_t>(layer)];
    const LayerSpec& shape = spec.layers[static_cast<std::size_t>(layer)];
    const bool from = is_spread(spec), into = is_spread(shape_);
    const RowRewriter keys({spec.key_type, from}, {shape_.key_type, into}, shape.head_dim);
    const RowRewriter values({spec.value_type, from}, {shape_.value_type, into}, shape.head_dim);
    to.truncate(copied_);  // what failed half-way is made again
    to.open(copied_, last);
    for (const LayerRows::Run& run : state.layer_rows(layer).runs(copied_, last))
      for (int head = 0; head < shape.kv_heads; ++head)
        for (Pos p = run.first; p < run.last; ++p) {
          keys(run.extent->key(head, p), to.key(head, p));
          values(run.extent->value(head, p), to.value(head, p));
        }
  }
  copied_ = last;
}

bool Shadow::looks_at(int layer, Pos first, std::int64_t tokens) const {
  if (layer < options_.first_layer || layer > options_.last_layer) return false;
  return (first + tokens) / options_.every > first / options_.every;
}

// The memory's own exact rows, and between sinks and window the copies instead of what stands for them.
std::vector<std::vector<Span>> Shadow::everything(
    const KvState& state, int layer, std::span<const std::vector<Span>> spans,
    const std::vector<ProceduralMemory::SealedBlock>& blocks) const {
  const LayerRows& copies = rows_[static_cast<std::size_t>(layer)];
  std::vector<std::vector<Span>> all(spans.size());
  for (std::size_t head = 0; head < spans.size(); ++head) {
    const bool full = state.past()->spec().plans[static_cast<std::size_t>(layer)][head].full;
    for (const Span& span : spans[head])
      if (span.sink) all[head].push_back(span);
    for (const auto& block : blocks)
      for (const LayerRows::Run& run : copies.runs(block.first, block.last)) {
        Span span;
        span.keys = run.extent->key(static_cast<int>(head), run.first);
        span.values = run.extent->value(static_cast<int>(head), run.first);
        span.key_type = shape_.key_type;
        span.value_type = shape_.value_type;
        span.spread = is_spread(shape_);
        span.key_stride = copies.format().key_stride();
        span.value_stride = copies.format().value_stride();
        span.rows = run.last - run.first;
        span.first = run.first;
        span.mass = full ? 0.0f : block.mass;
        const std::vector<float>& rotation = full ? block.full_rotation : block.rotation;
        if (!rotation.empty()) span.rotation = rotation.data();
        if (!rotation.empty()) span.rotation_pairs = state.past()->rotation_pairs(layer);
        all[head].push_back(span);
      }
    for (const Span& span : spans[head])
      if (span.first && !span.sink) all[head].push_back(span);
  }
  return all;
}

void Shadow::compare(ThreadPool& pool, const Kernels& kernels, const KvState& state, int layer,
                     const AttendInput& input, const float* out, const float* log_mass) {
  const AttendShape& shape = input.shape;
  const ProceduralMemory& past = *state.past();
  // Before the first seal, and in layers with a window of their own, there is nothing to compare.
  if (!past.holds(layer) || past.exact_from() == 0) return;
  const Timer timer(seconds_);
  const auto blocks = past.sealed_blocks(layer);
  const auto all = everything(state, layer, input.spans, blocks);
  const auto all_views = view_points(all);
  const std::int64_t width = static_cast<std::int64_t>(shape.heads) * shape.head_dim;
  const int group = shape.heads / shape.kv_heads;
  std::vector<float> truth(static_cast<std::size_t>(width)),
      truth_mass(static_cast<std::size_t>(shape.heads));
  for (Pos p = shape.first / options_.every * options_.every + options_.every - 1;
       p < shape.first + shape.tokens; p += options_.every) {
    const std::int64_t t = p - shape.first;
    AttendShape one = shape;
    one.first = p;
    one.tokens = 1;
    std::vector<const float*> here;
    for (const ViewPoint& view : all_views)
      here.push_back(input.q[static_cast<std::size_t>(
                         std::find(input.views.begin(), input.views.end(), view) - input.views.begin())] +
                     t * width);
    attend(pool, kernels.attend, {one, all_views, here, all}, truth.data(), truth_mass.data());
    SampledErrors errors;
    errors.output.resize(static_cast<std::size_t>(shape.heads));
    errors.log_mass.resize(errors.output.size());
    errors.overlap.resize(errors.output.size());
    pool.run(shape.kv_heads, [&](std::int64_t h) {
      std::vector<std::vector<float>> queries;
      for (int g = 0; g < group; ++g) {
        const float* query = input.q[0] + t * width + (h * group + g) * shape.head_dim;
        queries.emplace_back(query, query + shape.head_dim);
      }
      const auto head = static_cast<std::size_t>(h);
      const auto in_truth = top_rows(kernels.dense, all[head], queries, one,
                                     [](const Span& span, std::int64_t row) { return *span.first + row; });
      const auto in_memory =
          top_rows(kernels.dense, input.spans[head], queries, one, [&](const Span& span, std::int64_t row) {
            if (span.first) return *span.first + row;
            return past.position_of(layer, static_cast<int>(h), span.keys + row * span.key_stride);
          });
      for (int g = 0; g < group; ++g) {
        const auto i = static_cast<std::size_t>(h * group + g);
        const std::int64_t at = static_cast<std::int64_t>(i) * shape.head_dim;
        errors.output[i] = relative_distance(out + t * width + at, truth.data() + at, shape.head_dim);
        errors.log_mass[i] =
            std::abs(static_cast<double>(log_mass[t * shape.heads + static_cast<std::int64_t>(i)]) -
                     static_cast<double>(truth_mass[i]));
        errors.overlap[i] =
            jaccard(in_truth[static_cast<std::size_t>(g)], in_memory[static_cast<std::size_t>(g)]);
      }
    });
    seen_.push_back({layer, std::move(errors)});
  }
}

void Shadow::end_step() noexcept {
  for (const Seen& seen : seen_) {
    meter_.add(seen.layer, seen.errors);
    tokens_ += seen.layer == first_compared_;
  }
  seen_.clear();
}

Drift Shadow::drift() const {
  Drift drift = meter_.drift(tokens_);
  for (const LayerRows& rows : rows_) drift.bytes += rows.held_bytes();
  drift.seconds = seconds_;
  return drift;
}

}  // namespace kvtide
