#include "kvtide/session.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/out_of_memory.h"
#include "base/text.h"
#include "engine/session_spec.h"
#include "kernels/kernels.h"
#include "kvtide/error.h"
#include "model/decoder.h"
#include "model/loaded_model.h"
#include "model/memory_shape.h"
#include "model/pass_timer.h"
#include "state/procedural/budget.h"
#include "state/procedural/choice.h"
#include "state/shadow.h"
#include "state/snapshot.h"
#include "state/state_object.h"
#include "tensor/element_type.h"

namespace kvtide {
namespace {

constexpr std::int64_t kLogitRows = 16;  // rows of logits computed at a time

}  // namespace

struct Session::Impl {
  const Model* model;
  SessionOptions options;
  const Kernels& kernels;
  ThreadPool pool;
  State memory;
  KvState& state;
  std::vector<float>& logits;         // [vocabulary] of the last token
  std::vector<TokenId>& read_tokens;  // what the memory's positions hold
  Workspace workspace;
  std::vector<float> rows;  // [kLogitRows][vocabulary], only when several rows are asked for
  bool failed = false;
  // What was asked for when the session was made, filled in. Its budget holds for every memory that the session
  // goes on from.
  std::optional<ProceduralOptions> asked;
  std::unique_ptr<Shadow> shadow;  // nullptr: none
  PassTimes times;

  Impl(const Model& m, const SessionOptions& o)
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
    if (options.shadow) {
      shadow = std::make_unique<Shadow>(*options.shadow, state);
    }
  }

  void seal_if_due() {
    if (shadow) shadow->keep(state);
    const PassTimer timer(options.profile ? &times : nullptr, &PassTimes::seal);
    state.seal_if_due(pool, kernels);
  }

  DecoderContext context() {
    return {model->internals().config,
            *model->internals().weights,
            kernels,
            pool,
            {},
            options.exact,
            shadow.get(),
            options.profile ? &times : nullptr};
  }

  // Reads one chunk; logits rows of the chunk's tokens from `from` on go to on_logits, the last row to
  // `logits`.
  void read_chunk(std::span<const TokenId> tokens, Pos from, bool keep_last, const ReadOptions& read) {
    const Pos end = state.position() + static_cast<Pos>(tokens.size());
    std::int64_t wanted = 0;
    if (read.on_logits)
      wanted = std::clamp<std::int64_t>(end - from, 0, static_cast<std::int64_t>(tokens.size()));
    if (keep_last) wanted = std::max<std::int64_t>(wanted, 1);
    const DecoderContext c = context();
    const std::int64_t width = c.config.width, vocab = c.config.vocab;
    // Once the memory has the tokens, nothing may fail for lack of room to note them.
    if (read.on_logits && end - from > 0) rows.resize(static_cast<std::size_t>(kLogitRows * vocab));
    if (keep_last) logits.reserve(static_cast<std::size_t>(vocab));
    if (read_tokens.size() + tokens.size() > read_tokens.capacity())
      read_tokens.reserve(std::max(read_tokens.size() + tokens.size(), 2 * read_tokens.size()));
    if (shadow) shadow->begin_step();
    const std::span<const float> hidden = forward(c, workspace, state, tokens, wanted);
    read_tokens.insert(read_tokens.end(), tokens.begin(), tokens.end());
    logits.clear();
    if (shadow) shadow->end_step();
    if (read.on_logits && end - from > 0) {
      for (std::int64_t first = 0; first < wanted; first += kLogitRows) {
        const std::int64_t count = std::min(kLogitRows, wanted - first);
        kvtide::logits(c, workspace, hidden.data() + first * width, count, rows.data());
        for (std::int64_t i = 0; i < count; ++i)
          read.on_logits(end - wanted + first + i,
                         {rows.data() + i * vocab, static_cast<std::size_t>(vocab)});
        if (keep_last && first + count == wanted)
          logits.assign(rows.begin() + (count - 1) * vocab, rows.begin() + count * vocab);
      }
    } else if (keep_last) {
      logits.resize(static_cast<std::size_t>(vocab));
      kvtide::logits(c, workspace, hidden.data() + (wanted - 1) * width, 1, logits.data());
    }
  }

  // Everything is checked before anything is changed; `name` is what the messages call the state.
  void go_on_from(KvState&& theirs, SnapshotExtras extras, const std::string& name) {
    const auto refuse = [&](const std::string& why) {
      throw Error(ErrorCode::invalid_argument, cat(name, ": ", why));
    };
    const auto count = static_cast<std::int64_t>(extras.tokens.size());
    if (count != theirs.position())
      refuse(cat("it holds ", count, " tokens for ", theirs.position(), " positions"));
    for (const TokenId token : extras.tokens)
      if (token >= model->vocabulary()) refuse(cat("token id ", token, " is outside the vocabulary"));
    if (!extras.logits.empty() && static_cast<std::int64_t>(extras.logits.size()) != model->vocabulary())
      refuse("the logits are not as long as the vocabulary");
    // Rows that came as plain arrays say nothing of how they were computed.
    if (!extras.identity.empty() && extras.exact != options.exact)
      refuse(cat("it was computed with", extras.exact ? "" : "out", " --exact"));
    if (shadow && theirs.position() > 0)
      refuse(
          "shadow mode has to see a text from its start, which a memory that comes from elsewhere cannot "
          "show");
    const ModelConfig& config = model->internals().config;
    const KvSpec ours = memory_shape(config);
    const auto same_layer = [](const LayerSpec& a, const LayerSpec& b) {
      return a.kv_heads == b.kv_heads && a.head_dim == b.head_dim && a.window == b.window;
    };
    const auto& layers = theirs.spec().layers;
    if (!std::equal(layers.begin(), layers.end(), ours.layers.begin(), ours.layers.end(), same_layer))
      refuse("its layers have another shape than the model's");
    const auto same_tensor = [](const RecurrentSpec& a, const RecurrentSpec& b) {
      return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape;
    };
    const auto& carried = theirs.spec().recurrent;
    if (!std::equal(carried.begin(), carried.end(), ours.recurrent.begin(), ours.recurrent.end(),
                    same_tensor))
      refuse(ours.recurrent.empty()
                 ? "it holds tensors without a sequence axis, which the model has none of"
                 : cat("it does not hold what the model's layers carry from token to token ('",
                       ours.recurrent[0].name, "' and so on); rows alone cannot be continued"));
    if (theirs.past() != nullptr && asked && asked->budget > 0) {
      const std::string why = theirs.why_not_budget(asked->budget, asked->budget_for);
      if (!why.empty()) refuse(why);
      theirs.set_budget(asked->budget, asked->budget_for);
    }

    // From here on nothing can fail. The state says what the memory is; the session says how large its steps
    // may be.
    theirs.set_max_step(options.prefill_chunk);
    theirs.set_positions(ours.positions);
    if (theirs.capacity() < options.context) theirs.apply(Expand{options.context});
    std::optional<ProceduralOptions> past = theirs.spec().procedural;
    if (past && asked &&
        keeps_the_same(*theirs.spec().procedural, procedural_spec(ours, attention_shape(config), *asked))) {
      // A file tells what the choices led to, the session knows the choices; the budget is the state's.
      past = asked;
      past->budget = theirs.spec().procedural->budget;
      past->budget_for = theirs.spec().procedural->budget_for;
    }
    state = std::move(theirs);
    read_tokens = std::move(extras.tokens);
    logits = std::move(extras.logits);
    failed = false;
    options.key_type = element_type_of(state.spec().key_type);
    options.value_type = element_type_of(state.spec().value_type);
    options.rolling = state.spec().rolling;
    options.procedural = std::move(past);
    options.auto_attention = state.adapting() ? std::optional(state.adapting()->range) : std::nullopt;
    options.slack = state.spec().slack;
    options.context = state.capacity();
  }
};

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
  if (s.failed)
    throw Error(ErrorCode::numeric,
                "this session met numbers that are not finite and cannot go on; clear it first");
  const auto count = static_cast<std::int64_t>(tokens.size());
  const ModelConfig& config = s.model->internals().config;
  if (config.learned_positions && count > config.context_length - s.state.position())
    throw Error(ErrorCode::context_full,
                cat("the model has learned ", config.context_length, " positions: ", s.state.position(),
                    " are taken and ", count,
                    " more do not fit; later positions mean nothing to it, and older "
                    "ones cannot be shifted away, so read a shorter text"));
  if (count > s.state.room())
    throw Error(ErrorCode::context_full,
                cat("the context is full: it holds ", s.state.position(), " of ", s.state.capacity(),
                    " tokens and ", count, " more do not fit; use a larger context (-c) or a shorter text"));
  s.state.check_budget(count);
  for (const TokenId token : tokens)
    if (token < 0 || token >= s.model->vocabulary())
      throw Error(ErrorCode::invalid_argument,
                  cat("token id ", token, " is outside the vocabulary of ", s.model->vocabulary()));
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
  std::vector<ProceduralEvent> events = state.past()->newest_seal();
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

Session Session::fork() const try {
  // The memory may have been compacted below its window or its chunks; a new one may not begin like that.
  SessionOptions options = impl_->options;
  options.shadow.reset();  // it would lack what was read so far
  options.context = std::max(options.context, options.prefill_chunk);
  if (options.rolling)
    options.context = std::max(options.context, options.rolling->sinks + options.rolling->window);
  options.procedural.reset();  // what it is stands in the state
  Session other(*impl_->model, options);
  other.impl_->options.procedural = impl_->options.procedural;
  other.impl_->options.context = impl_->options.context;
  other.impl_->asked = impl_->asked;
  other.impl_->state = impl_->state.fork();
  other.impl_->logits = impl_->logits;
  other.impl_->read_tokens = impl_->read_tokens;
  other.impl_->failed = impl_->failed;
  return other;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

void Session::save(const std::string& path, const std::string& cache) const try {
  Impl& s = *impl_;
  if (s.failed)
    throw Error(ErrorCode::numeric, "this session met numbers that are not finite: it cannot be saved");
  if (s.state.past() != nullptr && !s.state.past()->is_settled()) s.seal_if_due();
  PosixFiles files;
  save_snapshot(files, path, s.state, {s.model->identity(cache), s.options.exact, s.read_tokens, s.logits});
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

void Session::load(const std::string& path, const std::string& cache) try {
  PosixFiles files;
  Snapshot snapshot = load_snapshot(files, path, impl_->model->identity(cache));
  impl_->go_on_from(std::move(snapshot.state), std::move(snapshot.extras), path);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

const State& Session::state() const { return impl_->memory; }

void Session::restore(const State& state, const std::string& cache) try {
  const SnapshotExtras& extras = state.internals().extras;
  if (!extras.identity.empty() && extras.identity != impl_->model->identity(cache))
    throw Error(ErrorCode::invalid_argument, "the state belongs to another model than the session");
  impl_->go_on_from(state.internals().kv.fork(), extras, "state");
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::uint64_t hash_logits(std::span<const float> values, std::uint64_t seed) {
  // Four independent chains of multiply and rotate: fast enough to run after every token of a large
  // vocabulary.
  constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15u;
  std::uint64_t chain[4] = {seed + 1, seed + 2, seed + 3, seed + 4};
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint64_t& h = chain[i % 4];
    h = std::rotl((h ^ std::bit_cast<std::uint32_t>(values[i])) * kPrime, 29);
  }
  std::uint64_t hash = values.size() * kPrime;
  for (const std::uint64_t h : chain) hash = std::rotl((hash ^ h) * kPrime, 31);
  return hash ^ (hash >> 32);
}

}  // namespace kvtide
