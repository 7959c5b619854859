// session_memory.cpp: a session that goes on from another memory, and gives its own away: forks, snapshots, states.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/file.h"
#include "base/out_of_memory.h"
#include "base/text.h"
#include "engine/session_impl.h"
#include "kvtide/error.h"
#include "model/memory_shape.h"
#include "state/procedural/choice.h"
#include "state/procedural/stages.h"
#include "state/snapshot.h"
#include "tensor/element_type.h"

namespace kvtide {

void Session::Impl::check_fits(const KvState& theirs, const SnapshotExtras& extras,
                               const std::string& name) const {
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
  const KvSpec ours = memory_shape(model->internals().config);
  const auto same_layer = [](const LayerSpec& a, const LayerSpec& b) {
    return a.kv_heads == b.kv_heads && a.head_dim == b.head_dim && a.window == b.window;
  };
  const auto& layers = theirs.spec().layers;
  if (!std::equal(layers.begin(), layers.end(), ours.layers.begin(), ours.layers.end(), same_layer))
    refuse("its layers have another shape than the model's");
  // The same model rotates short texts and long ones differently; arrays that came from elsewhere may not say how.
  const auto about_same = [](double a, double b) { return std::abs(a - b) <= 1e-3 * std::abs(b); };
  for (std::size_t i = 0; i < layers.size(); ++i)
    if (const auto& a = layers[i].frequencies, &b = ours.layers[i].frequencies;
        !a.empty() && !std::equal(a.begin(), a.end(), b.begin(), b.end(), about_same))
      refuse(
          "its keys were rotated by other angles (a model with two rotations, loaded for another context)");
  const auto same_tensor = [](const RecurrentSpec& a, const RecurrentSpec& b) {
    return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape;
  };
  const auto& carried = theirs.spec().recurrent;
  if (!std::equal(carried.begin(), carried.end(), ours.recurrent.begin(), ours.recurrent.end(), same_tensor))
    refuse(ours.recurrent.empty()
               ? "it holds tensors without a sequence axis, which the model has none of"
               : cat("it does not hold what the model's layers carry from token to token ('",
                     ours.recurrent[0].name, "' and so on); rows alone cannot be continued"));
  if (theirs.past() != nullptr && theirs.past()->spec().score == RowScore::repetition &&
      !can_repeat(model->internals().config))
    refuse("its rows are ranked by repetition, which a model whose layers share rows cannot do");
  if (theirs.past() != nullptr && asked && asked->budget > 0) {
    const std::string why = theirs.why_not_budget(asked->budget, asked->budget_for);
    if (!why.empty()) refuse(why);
  }
}

void Session::Impl::go_on_from(KvState&& theirs, SnapshotExtras extras, const std::string& name) {
  check_fits(theirs, extras, name);
  const ModelConfig& config = model->internals().config;
  const KvSpec ours = memory_shape(config);
  if (theirs.past() != nullptr && asked && asked->budget > 0)
    theirs.set_budget(asked->budget, asked->budget_for);

  theirs.set_checkpoints(options.checkpoints);

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
  options.key_type = element_type_of(window_types(state.spec()).key_type);
  options.value_type = element_type_of(window_types(state.spec()).value_type);
  options.rolling = state.spec().rolling;
  options.procedural = std::move(past);
  options.auto_attention = state.adapting() ? std::optional(state.adapting()->range) : std::nullopt;
  options.slack = state.spec().slack;
  options.context = state.capacity();
}

TransitionRecord Session::truncate(Pos length, const ReadOptions& options) try {
  Impl& s = *impl_;
  const TransitionPlan plan = s.state.plan(Truncate{length, true});
  if (!plan) throw Error(ErrorCode::invalid_argument, plan.refusal());
  const Pos again = plan.expected().read_again;
  const std::vector<TokenId> missing(s.read_tokens.begin() + (length - again),
                                     s.read_tokens.begin() + length);
  TransitionRecord record = apply(plan.transition());
  if (again == 0) return record;
  ReadOptions quiet;
  quiet.progress = options.progress;
  quiet.need_logits = false;
  read(missing, quiet);
  record.rows_kept = s.state.rows();
  record.bytes_after = s.state.held_bytes();
  return record;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

bool Session::checkpoint() {
  return or_out_of_memory([&] { return impl_->state.checkpoint(); });
}

const std::vector<Pos>& Session::checkpoints() const { return impl_->state.checkpoints(); }

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
  if (!s.state.is_settled()) s.seal_if_due();
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

void Session::restore(const State& state, const std::string& cache) try {
  const SnapshotExtras& extras = state.internals().extras;
  if (!extras.identity.empty() && extras.identity != impl_->model->identity(cache))
    throw Error(ErrorCode::invalid_argument, "the state belongs to another model than the session");
  impl_->go_on_from(state.internals().kv.fork(), extras, "state");
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
