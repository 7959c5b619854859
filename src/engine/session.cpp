#include "kvtide/session.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "engine/session_impl.h"
#include "kvtide/error.h"
#include "state/procedural/budget.h"

namespace kvtide {
namespace {

constexpr std::int64_t kLogitRows = 16;  // rows of logits computed at a time
constexpr Pos kLeadIn = 8;               // tokens read again in front of those that are looked at

}  // namespace

Session::Impl::Impl(const Model& m, const SessionOptions& o)
    : model(&m),
      options(completed(m.internals().config, o)),
      kernels(options.kernels.empty() ? best_kernels() : kernels_by_name(options.kernels)),
      pool(options.threads),
      memory(std::make_unique<State::Impl>(
          State::Impl{KvState(kv_spec(m.internals().config, options)), {{}, options.exact, {}, {}}})),
      state(memory.internals().kv),
      logits(memory.internals().extras.logits),
      read_tokens(memory.internals().extras.tokens),
      workspace(m.internals().config, options.prefill_chunk) {
  if (options.attention_size || options.auto_attention)
    state.apply(SetAttention{options.attention_size, options.auto_attention});
  asked = options.procedural;
  if (options.shadow) shadow = std::make_unique<Shadow>(*options.shadow, state);
}

void Session::Impl::seal_if_due(ThreadPool& threads) {
  if (shadow) shadow->keep(state);
  const PassTimer timer(options.profile ? &times : nullptr, &PassTimes::seal);
  std::optional<Repetition> repetition;
  const auto repeat_block = [&](const PosRange& block) {
    repetition.emplace(block, state.spec().layers.size());
    return repeat(*repetition, threads) ? &*repetition : nullptr;
  };
  state.seal_if_due(threads, kernels, read_tokens,
                    std::cref(repeat_block));  // a reference: the tokens are read, and nothing may fail
}

bool Session::Impl::repeat(Repetition& repetition, ThreadPool& threads) {
  const ModelConfig& config = model->internals().config;
  const PosRange block = repetition.block();
  const Pos most = repeated_tokens(state.spec());
  if (config.learned_positions && state.position() + most > config.context_length) return false;
  if (workspace.max_step() < most) workspace = Workspace(config, most);
  DecoderContext c = context(threads);
  c.times = nullptr;  // it is a part of sealing
  for (Pos at = block.first; at < block.last;) {
    // A model finds its place by the words before it.
    const Pos from = std::max<Pos>(0, at - std::min(kLeadIn, most / 2)),
              to = std::min(block.last, from + most);
    const PassPart part{
        .state = state,
        .tokens = std::span(read_tokens)
                      .subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from)),
        .repetition = &repetition};
    if (!forward(c, workspace, std::span(&part, 1)).front().not_finite.empty()) return false;
    at = to;
  }
  return true;
}

void Session::Impl::check(std::span<const TokenId> tokens) const {
  if (failed)
    throw Error(ErrorCode::numeric,
                "this session met numbers that are not finite and cannot go on; clear it first");
  const auto count = static_cast<std::int64_t>(tokens.size());
  const ModelConfig& config = model->internals().config;
  if (config.learned_positions && count > config.context_length - state.position())
    throw Error(ErrorCode::context_full,
                cat("the model has learned ", config.context_length, " positions: ", state.position(),
                    " are taken and ", count,
                    " more do not fit; later positions mean nothing to it, and older "
                    "ones cannot be shifted away, so read a shorter text"));
  if (count > state.room())
    throw Error(ErrorCode::context_full,
                cat("the context is full: it holds ", state.position(), " of ", state.capacity(),
                    " tokens and ", count, " more do not fit; use a larger context (-c) or a shorter text"));
  state.check_budget(count);
  for (const TokenId token : tokens)
    if (token < 0 || token >= model->vocabulary())
      throw Error(ErrorCode::invalid_argument,
                  cat("token id ", token, " is outside the vocabulary of ", model->vocabulary()));
}

void Session::Impl::reserve(std::size_t tokens, bool with_logits) {
  if (with_logits) logits.reserve(static_cast<std::size_t>(model->vocabulary()));
  if (read_tokens.size() + tokens > read_tokens.capacity())
    read_tokens.reserve(std::max(read_tokens.size() + tokens, 2 * read_tokens.size()));
}

DecoderContext Session::Impl::context(ThreadPool& threads) {
  return {model->internals().config,         *model->internals().weights, kernels, threads, {}, options.exact,
          options.profile ? &times : nullptr};
}

void Session::Impl::read_chunk(std::span<const TokenId> tokens, Pos from, bool keep_last,
                               const ReadOptions& read) {
  const Pos end = state.position() + static_cast<Pos>(tokens.size());
  std::int64_t wanted = 0;
  if (read.on_logits)
    wanted = std::clamp<std::int64_t>(end - from, 0, static_cast<std::int64_t>(tokens.size()));
  if (keep_last) wanted = std::max<std::int64_t>(wanted, 1);
  const DecoderContext c = context();
  const std::int64_t width = c.config.width, vocab = c.config.vocab;
  if (read.on_logits && end - from > 0) rows.resize(static_cast<std::size_t>(kLogitRows * vocab));
  reserve(tokens.size(), keep_last);
  if (shadow) shadow->begin_step();
  const std::span<const float> hidden = forward(c, workspace, {state, tokens, wanted, {}, shadow.get()});
  read_tokens.insert(read_tokens.end(), tokens.begin(), tokens.end());
  // Logits that are about to be overwritten stay: after a clear(), resize() would first write zeros.
  if (!keep_last || read.on_logits) logits.clear();
  if (shadow) shadow->end_step();
  if (read.on_logits && end - from > 0) {
    for (std::int64_t first = 0; first < wanted; first += kLogitRows) {
      const std::int64_t count = std::min(kLogitRows, wanted - first);
      kvtide::logits(c, workspace, hidden.data() + first * width, count, rows.data());
      for (std::int64_t i = 0; i < count; ++i)
        read.on_logits(end - wanted + first + i, {rows.data() + i * vocab, static_cast<std::size_t>(vocab)});
      if (keep_last && first + count == wanted)
        logits.assign(rows.begin() + (count - 1) * vocab, rows.begin() + count * vocab);
    }
  } else if (keep_last) {
    logits.resize(static_cast<std::size_t>(vocab));
    kvtide::logits(c, workspace, hidden.data() + (wanted - 1) * width, 1, logits.data());
  }
}

// How many of `tokens`, the first of which fits, one pass can take on trial.
std::size_t Session::Impl::guessable(std::size_t tokens) const {
  if (shadow) return 1;  // it compares what was read, not what was guessed
  const ModelConfig& config = model->internals().config;
  std::int64_t most = std::min({kLogitRows, options.prefill_chunk, state.step_room(), state.room()});
  if (config.learned_positions) most = std::min(most, config.context_length - state.position());
  const auto count = std::min(tokens, static_cast<std::size_t>(most));
  return state.over_budget(static_cast<std::int64_t>(count)) > 0 ? 1 : count;
}

std::int64_t Session::Impl::read_guesses(std::span<const TokenId> tokens, const GoesOn& goes_on) {
  const DecoderContext c = context();
  const auto vocab = static_cast<std::size_t>(c.config.vocab);
  const auto count = static_cast<std::int64_t>(tokens.size());
  rows.resize(static_cast<std::size_t>(kLogitRows) * vocab);
  reserve(tokens.size(), true);
  std::int64_t kept = 1;
  forward(c, workspace,
          {state, tokens, count, [&](std::span<const float> hidden) {
             kvtide::logits(c, workspace, hidden.data(), count, rows.data());
             while (kept < count && goes_on({&rows[static_cast<std::size_t>(kept - 1) * vocab], vocab}))
               ++kept;
             return kept;
           }});
  read_tokens.insert(read_tokens.end(), tokens.begin(), tokens.begin() + kept);
  const float* last = rows.data() + static_cast<std::size_t>(kept - 1) * vocab;
  logits.assign(last, last + vocab);
  return kept;
}

Session::Session(const Model& model, const SessionOptions& options) try
    : impl_(std::make_unique<Impl>(model, options)) {
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

void Session::read(std::span<const TokenId> tokens, const ReadOptions& options) try {
  Impl& s = *impl_;
  s.check(tokens);
  const auto count = static_cast<std::int64_t>(tokens.size());
  const Pos from = options.logits_from < 0 ? s.state.position() + count : options.logits_from;
  // Due only when the seal behind the last chunk failed: a disk that had no room may have some now.
  s.seal_if_due();
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t chunk = std::min({s.options.prefill_chunk, s.state.step_room(), count - done});
    const bool last = done + chunk == count;
    const auto read = tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(chunk));
    try {
      s.read_chunk(read, from, last && options.need_logits, options);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::numeric) s.failed = true;
      throw;
    }
    s.seal_if_due();
    done += chunk;
    if (options.progress && !options.progress(done))
      throw Error(ErrorCode::cancelled, cat("stopped after ", done, " of ", count, " tokens"));
  }
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::int64_t Session::read_while(std::span<const TokenId> tokens, const GoesOn& goes_on) try {
  Impl& s = *impl_;
  if (tokens.empty())
    throw Error(ErrorCode::invalid_argument, "no token to read, and none to guess behind it");
  s.check(tokens.first(1));
  s.seal_if_due();
  const auto tried = tokens.first(s.guessable(tokens.size()));
  std::int64_t kept = 1;
  try {
    if (tried.size() == 1)
      s.read_chunk(tried, s.state.position() + 1, true, {});
    else
      kept = s.read_guesses(tried, goes_on);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::numeric) s.failed = true;
    throw;
  }
  s.seal_if_due();
  return kept;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::span<const float> Session::logits() const { return impl_->logits; }
Pos Session::position() const { return impl_->state.position(); }
std::int64_t Session::context() const { return impl_->state.capacity(); }
std::int64_t Session::rows() const { return impl_->state.rows(); }
std::int64_t Session::room() const { return impl_->state.room(); }
const Model& Session::model() const { return *impl_->model; }
const SessionOptions& Session::options() const { return impl_->options; }

MemoryUse Session::memory() const {
  MemoryUse use;
  use.weights = impl_->model->weights_bytes();
  use.kv = impl_->state.held_bytes();
  use.kv_shared = impl_->state.shared_bytes();
  use.kv_checkpoints = or_out_of_memory([&] { return impl_->state.checkpoint_bytes(); });
  use.scratch = impl_->workspace.bytes() + impl_->model->vocabulary_bytes() +
                static_cast<std::int64_t>((impl_->rows.size() + impl_->logits.size()) * sizeof(float));
  return use;
}

PassTimes Session::times() const { return impl_->times; }

void Session::clear() try {
  impl_->state.clear();
  if (impl_->shadow) impl_->shadow->clear();
  impl_->logits.clear();
  impl_->read_tokens.clear();
  impl_->failed = false;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

const std::vector<TokenId>& Session::tokens() const { return impl_->read_tokens; }
std::optional<std::int64_t> Session::attention_size() const { return impl_->state.attention_size(); }
std::optional<ProceduralCounts> Session::procedural_counts() const try {
  if (impl_->state.past() == nullptr) return std::nullopt;
  ProceduralCounts counts = impl_->state.past()->counts();
  counts.sink_rows = impl_->state.exact_rows(true);
  counts.window_rows = impl_->state.exact_rows(false);
  counts.bytes_peak = impl_->state.bytes_peak();
  counts.steady_from = impl_->state.steady_from();
  return counts;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}
std::vector<ProceduralEvent> Session::newest_seal() const try {
  const KvState& state = impl_->state;
  if (state.past() == nullptr) return {};
  std::vector<ProceduralEvent> events = state.newest_changes();
  for (ProceduralEvent& event : events) {
    event.after.sink_rows = state.exact_rows(true);
    event.after.window_rows = state.exact_rows(false);
    event.after.bytes_peak = state.bytes_peak();
    event.after.steady_from = state.steady_from();
    event.bytes = state.held_bytes();
  }
  return events;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}
void Session::pin(const PosRange& positions) try {
  Impl& s = *impl_;
  std::vector<PosRange> pins;  // before anything changes: nothing may fail then
  if (s.state.past() != nullptr) pins = with_pin(s.state.spec().procedural->pins, positions);
  s.state.pin(positions);
  s.options.procedural->pins = std::move(pins);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}
std::optional<Drift> Session::drift() const try {
  return impl_->shadow ? std::optional(impl_->shadow->drift()) : std::nullopt;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}
std::optional<ProceduralBytes> Session::procedural_plan() const try {
  if (impl_->state.past() == nullptr) return std::nullopt;
  return planned_bytes(impl_->state.spec());
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}
std::vector<AttentionChange> Session::attention_changes() const try {
  const auto& log = impl_->state.adapting();
  return log ? kvtide::attention_changes(*log) : std::vector<AttentionChange>();
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}
TransitionPlan Session::plan(const Transition& transition) const {
  return or_out_of_memory([&] { return impl_->state.plan(transition); });
}

TransitionRecord Session::apply(const Transition& transition) try {
  Impl& s = *impl_;
  TransitionRecord record = s.state.apply(transition);
  if (s.shadow && s.state.position() == 0) s.shadow->clear();
  follow(s.memory.internals().extras, transition, record);
  s.options.context = s.state.capacity();
  s.options.auto_attention = s.state.adapting() ? std::optional(s.state.adapting()->range) : std::nullopt;
  return record;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

const State& Session::state() const { return impl_->memory; }

}  // namespace kvtide
