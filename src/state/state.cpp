#include "state/state.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/text.h"
#include "kernels/attend_kernel.h"
#include "kernels/codec.h"
#include "kernels/hadamard.h"
#include "kvtide/error.h"
#include "state/procedural/budget.h"
#include "state/procedural/stages.h"

namespace kvtide {
namespace {

// What a memory may grow and still be said to hold what it held.
constexpr std::int64_t kSteadyBytes = std::int64_t{1} << 21, kSteadyShare = 32;

}  // namespace

std::vector<LayerRows> rows_of(const KvSpec& spec) {
  std::vector<LayerRows> rows;
  rows.reserve(spec.layers.size());
  for (const LayerSpec& layer : spec.layers)
    rows.emplace_back(row_format(spec, layer), std::max(kReservedRows, spec.capacity + spec.max_step));
  return rows;
}

KvState::KvState(const KvSpec& spec)
    : spec_((check(spec), spec)), recurrent_(spec.recurrent), released_(spec.layers.size(), 0) {
  if (spec_.procedural) {
    std::vector<ProceduralMemory::LayerShape> shapes;
    for (const auto& layer : spec_.layers) shapes.push_back({layer.kv_heads, layer.head_dim});
    if (const std::string why = why_not_within_budget(spec_); !why.empty())
      throw Error(ErrorCode::invalid_argument, "KV state: " + why);
    past_.emplace(memory_spec(spec_), shapes);
  }
  held_.forgotten.resize(spec_.layers.size());
  layers_ = rows_of(spec_);
}

std::int64_t KvState::rows() const {
  if (past_) return std::min(past_->spec().sinks, past_->exact_from()) + position() - past_->exact_from();
  return count_rows(spec_, held_);
}

Visibility KvState::visible(std::size_t layer, std::optional<std::int64_t> attention_size) const {
  Visibility visible = visibility(spec_, spec_.layers[layer], attention_size);
  visible.forgotten = held_.forgotten[layer];
  return visible;
}

std::int64_t KvState::room() const {
  if (past_) return kReservedRows << 20;
  // A rolling state forgets as it goes; its capacity has to hold what it keeps.
  if (spec_.rolling && spec_.rolling->sinks + spec_.rolling->window <= spec_.capacity)
    return kReservedRows << 20;
  return spec_.capacity - rows();
}

std::int64_t KvState::held_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& layer : layers_) bytes += layer.held_bytes();
  if (past_) bytes += past_->held_bytes();
  return bytes + recurrent_.held_bytes();
}

std::int64_t KvState::shared_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& layer : layers_) bytes += layer.shared_bytes();
  return bytes;
}

std::int64_t KvState::step_room() const {
  std::int64_t most = longest_step(spec_);
  if (adapting_) most = std::min(most, until_decision(position()));
  if (past_) most = std::min(most, next_change() - position());
  if (const std::int64_t next = until_checkpoint(spec_, position()); next > 0) most = std::min(most, next);
  return most;
}

KvState::Step KvState::begin(std::int64_t tokens, bool guessed) {
  if (!is_settled())
    throw Error(ErrorCode::invalid_argument, "KV state: a seal in which memory ended comes first");
  if (tokens < 1 || tokens > step_room())
    throw Error(ErrorCode::invalid_argument,
                cat("KV state: a step takes 1 to ", step_room(), " tokens, not ", tokens));
  if (tokens > room())
    throw Error(ErrorCode::context_full, cat("the context is full: ", rows(), " of ", spec_.capacity,
                                             " rows are used and ", tokens, " more do not fit"));
  check_budget(tokens);
  if (past_) past_->expect_references(position() + tokens);
  Step step(this, tokens, guessed);  // takes back what was opened when a later layer finds no memory
  for (auto& layer : layers_) layer.open(position(), position() + tokens);
  return step;
}

KvState::Step KvState::begin_again(std::int64_t tokens) {
  Step step(this, tokens, false);
  step.again_ = true;
  return step;
}

// What layer `i` no longer needs, and what it gives up for a step that ends at `end`.
void KvState::release(std::size_t i, Pos end) {
  if (past_ && past_->holds(static_cast<int>(i)))
    release_sealed(i, end);
  else
    release_unseen(i);
}

// Lets go of rows that no query from `position()` on, or after taking back `slack` positions, can see.
void KvState::release_unseen(std::size_t i) {
  const LayerSpec& layer = spec_.layers[i];
  const Pos keep = !layer.window && spec_.rolling ? spec_.rolling->sinks : 0;
  const Pos oldest =
      oldest_needed(spec_, layer, position()) / kTileRows * kTileRows;  // whole tiles: few calls
  Pos released = released_[i];
  for (const Segment& segment : held_.segments) {
    const Pos from = std::max({segment.first, keep, sweeps_ ? 0 : released_[i]}),
              to = std::min(segment.last, oldest - segment.shift);
    if (from >= to) continue;
    drop_but_checkpoints(i, from, to);
    released = std::max(released, to);
  }
  released_[i] = released;
}

void KvState::clear() {
  Holdings nothing = back_to(held_, 0);
  KvSpec at_first = spec_;
  set_row_types(at_first, row_types_at(spec_, 0));
  std::vector<LayerRows> empty = rows_of(at_first);
  if (past_) past_->clear();  // the last that may fail
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (layers_[i].format() == empty[i].format())
      layers_[i].truncate(0);
    else
      layers_[i] = std::move(empty[i]);
  }
  set_row_types(spec_, row_types_at(spec_, 0));
  changes_.clear();
  changing_ = false;
  std::fill(released_.begin(), released_.end(), 0);
  steady_bytes_ = 0;
  steady_from_ = 0;
  held_ = std::move(nothing);
  recurrent_.back_to(0);
  checkpoints_.clear();
  if (adapting_) {
    adapting_ = begin_log(adapting_->range, 0);
    attention_size_ = adapting_->range.smallest;
  }
  ++generation_;
}

KvState::Step::~Step() {
  if (state_ == nullptr) return;
  for (auto& layer : state_->layers_) layer.truncate(first_);
  state_->recurrent_.unstage();
}

void KvState::Step::write(const ElementwiseRow& kernels, int layer, int kv_head, std::int64_t token,
                          const float* key, const float* value) {
  const auto index = static_cast<std::size_t>(layer);
  const std::int64_t head_dim = state_->spec_.layers[index].head_dim;
  LayerRows& rows = state_->layers_[index];
  const bool spread = is_spread(state_->spec_);
  const auto put = [&](std::byte* target, DType dtype, const float* source) {
    float turned[kMaxHeadDim];
    if (spread) {
      std::copy_n(source, head_dim, turned);
      hadamard(turned, head_dim);
      source = turned;
    }
    if (dtype == DType::f16)
      kernels.to_f16(source, head_dim, reinterpret_cast<std::uint16_t*>(target));
    else
      encode_row(dtype, source, head_dim, target);
  };
  put(rows.key(kv_head, first_ + token), state_->spec_.key_type, key);
  if (!rows.format().values_in_keys)
    put(rows.value(kv_head, first_ + token), state_->spec_.value_type, value);
}

void KvState::Step::leave(int layer) {
  if (again_) state_->layers_[static_cast<std::size_t>(layer)].truncate(first_);
}

std::optional<std::int64_t> KvState::Step::window(int layer) const {
  const auto& spec = state_->spec_;
  return visibility(spec, spec.layers[static_cast<std::size_t>(layer)], state_->attention_size_).window;
}

bool KvState::Step::observes(int layer) const {
  return !again_ && state_->past_ &&
         state_->past_->references().shape().layers[static_cast<std::size_t>(layer)];
}
bool KvState::Step::observes(int layer, std::int64_t token) const {
  if (again_ || !state_->past_) return false;
  const References& references = state_->past_->references();
  return references.wants(layer, first_ + token) && references.stays(first_ + token, first_ + tokens_);
}
void KvState::Step::observe_query(const Kernels& kernels, int layer, std::int64_t token, int head,
                                  const float* query) {
  state_->past_->references().put_query(kernels, layer, first_ + token, head, query);
}
void KvState::Step::observe_log_mass(int layer, std::int64_t token, const float* log_mass) {
  state_->past_->references().put_log_mass(layer, first_ + token, log_mass);
}

std::int64_t KvState::exact_rows(bool sinks) const {
  const std::int64_t first = std::min(past_->spec().sinks, position());
  std::int64_t heads = 0;
  for (const auto& plans : past_->spec().plans) heads += static_cast<std::int64_t>(plans.size());
  return heads * (sinks ? first : position() - std::max(first, past_->exact_from()));
}

void KvState::note_level() {
  const std::int64_t held = held_bytes();
  bytes_peak_ = std::max(bytes_peak_, held);
  if (held <= steady_bytes_ + std::min(kSteadyBytes, steady_bytes_ / kSteadyShare)) return;
  steady_bytes_ = held;
  steady_from_ = position();
}

// Rows of sealed blocks go when those of a step need their room, layer by layer: the memory of a long text
// stays level.
void KvState::release_sealed(std::size_t layer, Pos end) {
  const ProceduralSpec& p = past_->spec();
  drop_sealed(layer,
              std::min(past_->exact_from(),
                       (std::max<Pos>(0, end - p.window - p.block) + kTileRows - 1) / kTileRows * kTileRows));
}

void KvState::drop_sealed(std::size_t layer, Pos until) {
  const Pos from = std::max(released_[layer], past_->spec().sinks);
  if (from >= until) return;
  layers_[layer].drop(from, until);
  released_[layer] = until;
}

// What of the state's own rows the queries of a step see, oldest first.
std::vector<VisibleRun> KvState::runs_of_step(int layer, Pos first, std::int64_t tokens) const {
  if (past_ && past_->holds(layer) && (past_->exact_from() > 0 || attention_size_)) {
    const Pos sinks = std::min(past_->spec().sinks, first + tokens);
    std::vector<VisibleRun> runs;
    if (sinks > 0) runs.push_back({{0, sinks, 0}, true});
    const Pos seen = attention_size_ ? std::max<Pos>(0, first - *attention_size_ + 1) : 0;
    const Segment rest{std::max({sinks, past_->exact_from(), seen}), first + tokens, 0};
    if (rest.first < rest.last) runs.push_back({rest, false});
    return runs;
  }
  std::vector<Segment> segments = held_.segments;
  if (segments.empty() || segments.back().last != first || segments.back().shift != 0)
    segments.push_back({first, first, 0});
  segments.back().last = first + tokens;
  return visible_runs(segments, visible(static_cast<std::size_t>(layer), attention_size_), first);
}

std::vector<std::int64_t> KvState::Step::sampled() const {
  std::vector<std::int64_t> tokens;
  if (!state_->adapting_ || again_) return tokens;
  for (Pos p = first_ / kSampleEvery * kSampleEvery + kSampleEvery - 1; p < first_ + tokens_;
       p += kSampleEvery)
    if (p / kSampleEvery >= state_->adapting_->first) tokens.push_back(p - first_);
  return tokens;
}

bool KvState::Step::is_measured(int layer) const {
  return !state_->spec_.layers[static_cast<std::size_t>(layer)].window;
}

std::vector<std::vector<Span>> KvState::Step::spans(int layer) {
  if (again_) {
    state_->layers_[static_cast<std::size_t>(layer)].open(first_, first_ + tokens_);
    state_->bytes_peak_ = std::max(state_->bytes_peak_, state_->held_bytes());
  } else {
    state_->release(static_cast<std::size_t>(layer), first_ + tokens_);
  }
  const KvSpec& spec = state_->spec_;
  const LayerSpec& layer_spec = spec.layers[static_cast<std::size_t>(layer)];
  const LayerRows& rows = state_->layers_[static_cast<std::size_t>(layer)];
  const Visibility visible = state_->visible(static_cast<std::size_t>(layer), state_->attention_size_);
  const ProceduralMemory* past = state_->past_ && state_->past_->holds(layer) ? &*state_->past_ : nullptr;
  bool sinks_done = false;

  std::vector<std::vector<Span>> heads(static_cast<std::size_t>(layer_spec.kv_heads));
  const auto add_past = [&] {
    if (past == nullptr || sinks_done) return;
    sinks_done = true;
    for (int head = 0; head < layer_spec.kv_heads; ++head)
      past->append_spans(layer, head, state_->attention_size_, first_, heads[static_cast<std::size_t>(head)]);
  };
  for (const VisibleRun& visible_run : state_->runs_of_step(layer, first_, tokens_)) {
    if (!visible_run.sink) add_past();
    const Segment& segment = visible_run.rows;
    // Readers that stand before the limit see the sinks from where they are: the plain view, bit for bit.
    const bool limited =
        visible_run.sink && visible.sink_reader && first_ + tokens_ - 1 > *visible.sink_reader;
    for (const LayerRows::Run& run : rows.runs(segment.first, segment.last))
      for (int head = 0; head < layer_spec.kv_heads; ++head) {
        Span span;
        span.keys = run.extent->key(head, run.first);
        span.values = run.extent->value(head, run.first);
        span.key_type = spec.key_type;
        span.value_type = spec.value_type;
        span.key_stride = rows.format().key_stride();
        span.value_stride = rows.format().value_stride();
        span.rows = run.last - run.first;
        span.first = run.first;
        span.shift = segment.shift;
        span.sink = visible_run.sink;
        span.spread = is_spread(spec);
        if (limited) span.reader_limit = visible.sink_reader;
        if (past != nullptr && visible_run.sink) {
          span.rotation = past->sink_rotation(layer);
          if (span.rotation != nullptr) span.rotation_pairs = past->rotation_pairs(layer);
        }
        heads[static_cast<std::size_t>(head)].push_back(span);
      }
  }
  return heads;
}

void KvState::Step::commit(std::int64_t kept) {
  if (kept < tokens_) {
    tokens_ = kept;
    for (auto& layer : state_->layers_) layer.truncate(first_ + kept);
  }
  // What needs memory comes first: a step that fails here is dropped like any other.
  for (std::size_t layer = 0; layer < state_->layers_.size(); ++layer)
    state_->release(layer, first_ + tokens_);
  auto& segments = state_->held_.segments;
  if (segments.size() == segments.capacity()) segments.reserve(segments.size() * 2 + 1);
  auto& log = state_->adapting_;
  if (log) {
    far_shares_.resize(sampled().size(), 0);
    if (!far_shares_.empty()) log->samples.reserve(log->samples.size() + far_shares_.size());
  }
  const Pos end = first_ + tokens_;
  std::vector<Pos> checkpoints = state_->checkpoints_;
  if (until_checkpoint(state_->spec_, first_) == tokens_) checkpoints = state_->with_checkpoint(end);
  state_->recurrent_.advance(end, state_->spec_.slack, checkpoints);

  state_->sweeps_ = !std::includes(checkpoints.begin(), checkpoints.end(), state_->checkpoints_.begin(),
                                   state_->checkpoints_.end());
  state_->checkpoints_ = std::move(checkpoints);
  if (segments.empty() || segments.back().last != first_ || segments.back().shift != 0)
    segments.push_back({first_, first_, 0});
  segments.back().last = first_ + tokens_;
  state_->held_.position = first_ + tokens_;
  if (state_->past_) state_->note_level();
  if (log && !far_shares_.empty()) {
    log->samples.insert(log->samples.end(), far_shares_.begin(), far_shares_.end());
    state_->attention_size_ = kvtide::attention_size(*log);
  }
  ++state_->generation_;
  state_ = nullptr;
}

}  // namespace kvtide
