#include "serve/work/lane.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "serve/work/disk_cache.h"
#include "serve/work/if_memory_allows.h"
#include "state/state_object.h"

namespace kvtide::serve {
namespace lane {

// What a model with windows can always take back: the end of an answer whose text is spelt with other tokens.
constexpr std::int64_t kSlack = 64;
// But where layers carry tensors, whose values of as many positions are kept, no more than fit into so many bytes.
constexpr std::int64_t kSlackBytes = std::int64_t{16} << 20, kLeastSlack = 4;
// An answer for which memory ended so often, one step behind another, gets the error.
constexpr int kMostTries = 4;
// Below so many tokens nobody waits for another to read them.
constexpr std::int64_t kWorthWaiting = 64;

// Of kept states. Each is a mapping of its own, or two behind a fork, and Linux gives a process 65,530 (vm.max_map_count).
constexpr std::size_t kMostLayers = 16384;

BatchOptions batch_options(const WorkOptions& o) {
  return {.threads = o.threads, .max_step = o.step + o.parallel, .kernels = {}};
}

bool has_windows(const State& state) {
  const StateShape shape = state.shape();
  return std::any_of(shape.layers.begin(), shape.layers.end(),
                     [](const StateLayer& layer) { return layer.window.has_value(); });
}

std::shared_ptr<const State> empty_state(const Model& model, const SessionOptions& options) {
  return std::make_shared<State>(Session(model, options).state().fork());
}

std::int64_t slack_of(const Model& model) {
  const std::int64_t carried = Session(model, {.threads = 1}).state().internals().kv.recurrent().held_bytes();
  return carried == 0 ? kSlack : std::clamp(kSlackBytes / carried, kLeastSlack, kSlack);
}

// The most that a state which keeps summaries ever holds; it grows with its blocks, not with its tokens.
std::int64_t most_bytes(const State& shape) {
  const auto budget = shape.budget();
  return budget && *budget > 0 ? *budget : shape.capacity_bytes();
}

}  // namespace lane

void Running::guard(FunctionRef<void()> work) {
  try {
    work();
  } catch (Error& thrown) {
    error = std::move(thrown);
  } catch (const std::bad_alloc&) {
    error.emplace(ErrorCode::out_of_memory, "out of memory");
  }
}

bool Running::is_over() const {
  if (error) return true;
  return !choices.empty() && !reads() &&
         std::all_of(choices.begin(), choices.end(), [](const Choice& c) { return c.writer.ended(); });
}

Lane::Lane(const Model& model, const WorkOptions& options)
    : model_(&model),
      options_(&options),
      context_(options.context > 0 ? options.context : model.context_length()),
      slack_(lane::slack_of(model)),
      batch_(model, lane::batch_options(options)),
      shape_(lane::empty_state(model, session_options({}, context_))),
      has_windows_(lane::has_windows(*shape_)),
      most_kept_(std::max<std::size_t>(1, lane::kMostLayers / shape_->shape().layers.size())) {}

std::shared_ptr<const State> Lane::shape_of(const AnswerSpec& spec) const {
  if (spec.from) return {spec.from, &spec.from->state};
  if (spec.memory.keeps_all() && !spec.memory.attention_size) return shape_;
  return lane::empty_state(*model_, session_options(spec.memory, context_));
}

SessionOptions Lane::session_options(const MemoryChoice& memory, std::int64_t tokens) const {
  SessionOptions out;
  out.exact = options_->exact;
  out.key_type = options_->key_type;
  out.value_type = options_->value_type;
  out.slack = slack_;
  out.checkpoints = options_->checkpoints;
  out.threads = 1;  // the batch has its own
  out.prefill_chunk = options_->step;
  return with_memory(std::move(out), memory, memory.keeps_all() ? tokens : context_);
}

std::int64_t Lane::growth(const AnswerSpec& spec, const State& shape, std::int64_t max_tokens,
                          std::int64_t shared) const {
  const auto prompt = static_cast<std::int64_t>(spec.prompt.size());
  const std::int64_t logits = model_->vocabulary() * static_cast<std::int64_t>(sizeof(float));
  // The state at the end of the prompt goes into the cache, and every choice goes on from it in pages of its own.
  if (shape.budget()) {
    const std::int64_t shadow = spec.memory.shadow ? shadow_bytes(shape, prompt + max_tokens) : 0;
    return (1 + spec.choices) * lane::most_bytes(shape) + spec.choices * logits + shadow;
  }
  const std::int64_t own = growth_bytes(shape, prompt, prompt + max_tokens) + logits;
  return growth_bytes(shape, shared, prompt) + spec.choices * own;
}

std::int64_t Lane::growth_left(const Running& running) const {
  const auto prompt = static_cast<std::int64_t>(running.spec.prompt.size());
  const std::int64_t end = prompt + running.max_tokens;
  const State& shape = *running.shape;
  if (running.reads())
    return growth(running.spec, shape, running.max_tokens, running.choices[0].session.position());
  std::int64_t left = 0;
  for (const Choice& choice : running.choices) {
    const State& state = choice.session.state();
    left += shape.budget() ? std::max<std::int64_t>(0, lane::most_bytes(shape) - state.held_bytes())
                           : growth_bytes(shape, state.position(), end);
    if (const auto drift = choice.session.drift())
      left += std::max<std::int64_t>(0, shadow_bytes(shape, end) - drift->bytes);
  }
  return left;
}

PrefixCache::Hit Lane::known_of(const AnswerSpec& spec, const State& shape) const {
  if (spec.from || spec.memory.shadow) return {};
  return cache_.find(spec.prompt, shape);
}

bool Lane::is_being_read(const AnswerSpec& spec, const State& shape) const {
  if (spec.from || spec.memory.shadow) return false;
  const std::int64_t known = cache_.find(spec.prompt, shape).length;
  const bool anywhere = spec.memory.keeps_all() && !has_windows_;
  return std::any_of(running_.begin(), running_.end(), [&](const Running& other) {
    if (!other.reads() || other.spec.from || !keep_alike(*other.shape, shape)) return false;
    const std::int64_t same = common_prefix(spec.prompt, other.spec.prompt);
    const bool whole = same == static_cast<std::int64_t>(other.spec.prompt.size());
    return same >= known + lane::kWorthWaiting && (whole || anywhere);
  });
}

Running& Lane::begin(AnswerSpec spec, std::shared_ptr<const State> shape,
                     std::shared_ptr<AnswerListener> listener, std::int64_t max_tokens) {
  const auto prompt = static_cast<std::int64_t>(spec.prompt.size());
  Running& out = running_.emplace_back();
  ++begun_;
  try {
    out.spec = std::move(spec);
    out.shape = std::move(shape);
    out.listener = std::move(listener);
    out.max_tokens = max_tokens;
    Session session(*model_, session_options(out.spec.memory, std::min(context_, prompt + max_tokens)));
    const PrefixCache::Hit hit = known_of(out.spec, *out.shape);
    if (hit.length > 0) session.restore(cache_.fork(hit));
    if (out.spec.from) session.restore(out.spec.from->state);
    out.read = static_cast<std::size_t>(session.position());
    out.figures.prompt_tokens = prompt;
    out.figures.cached_tokens = session.position();
    out.choices.reserve(static_cast<std::size_t>(out.spec.choices));
    out.choices.push_back(
        {std::move(session), AnswerWriter(model_->tokenizer(), out.spec, 0, max_tokens), {}});
  } catch (...) {
    running_.pop_back();
    throw;
  }
  return out;
}

// Tokens of prompts in a step that others write in. Changes when answers come, and none of their bits.
std::int64_t Lane::most_read_beside() const {
  const double most = static_cast<double>(options_->step);
  const double least = std::min(8.0, most);  // or a long prompt would never be read
  if (token_ms_ <= 0 || options_->beside_ms <= 0) return options_->step_beside;
  return static_cast<std::int64_t>(std::clamp(options_->beside_ms / token_ms_, least, most));
}

// Those that write come first: a token each. What is left of the step is for prompts, the oldest first.
std::vector<Batch::Item> Lane::items(std::vector<std::pair<Running*, Choice*>>& whose) {
  std::vector<Batch::Item> out;
  for (Running& running : running_) {
    if (running.error || running.reads() || running.listener->stalled()) continue;
    for (Choice& choice : running.choices) {
      if (!choice.next || static_cast<std::int64_t>(out.size()) >= batch_.options().max_step) continue;
      out.push_back({&choice.session, {&*choice.next, 1}});
      whose.emplace_back(&running, &choice);
    }
  }
  std::int64_t left = std::min(out.empty() ? options_->step : most_read_beside(),
                               batch_.options().max_step - static_cast<std::int64_t>(out.size()));
  for (Running& running : running_) {
    if (left <= 0) break;
    if (running.error || !running.reads()) continue;
    const std::span<const TokenId> rest = std::span(running.spec.prompt).subspan(running.read);
    const auto chunk = rest.first(std::min(rest.size(), static_cast<std::size_t>(left)));
    out.push_back({&running.choices[0].session, chunk, chunk.size() == rest.size()});
    whose.emplace_back(&running, &running.choices[0]);
    left -= static_cast<std::int64_t>(chunk.size());
  }
  return out;
}

// Whether memory ended before its tokens were read: the next step tries again. When it ended behind them, what failed is
// made up for by the next step, and the answer goes on.
bool Lane::starves(Running& running, Batch::Outcome& outcome) {
  if (!outcome.error || outcome.error->code() != ErrorCode::out_of_memory) {
    running.starved = 0;
    return false;
  }
  if (++running.starved > lane::kMostTries) return false;
  if (outcome.read > 0) outcome.error.reset();
  return outcome.read == 0;
}

Lane::Done Lane::step() {
  Done done;
  std::vector<std::pair<Running*, Choice*>> whose;
  const std::vector<Batch::Item> batch = items(whose);
  if (batch.empty()) return done;
  done.worked = true;
  const Stopwatch watch;
  std::vector<Batch::Outcome> outcomes = batch_.step(batch);
  const double ms = watch.ms();
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    Running& running = *whose[i].first;
    if (running.error || starves(running, outcomes[i])) continue;
    running.guard([&] {
      if (outcomes[i].error) throw std::move(*outcomes[i].error);
      if (running.reads()) {
        running.read += static_cast<std::size_t>(outcomes[i].read);
        done.read += outcomes[i].read;
        if (!running.reads()) prompt_is_read(running);
      } else {
        advance(running, *whose[i].second);
      }
    });
  }
  if (done.read > 0) {
    const double now = ms / static_cast<double>(done.read + static_cast<std::int64_t>(batch.size()));
    token_ms_ = token_ms_ > 0 ? 0.75 * token_ms_ + 0.25 * now : now;
  }
  done.written = std::exchange(written_, 0);
  return done;
}

void Lane::prompt_is_read(Running& running) {
  running.figures.prompt_ms = running.since.ms();
  // Others that begin the same go on from here, and so does an edited last message where windows have moved on.
  const bool is_new = running.figures.prompt_tokens > running.figures.cached_tokens + lane::kWorthWaiting;
  if_memory_allows([&] {
    running.choices[0].session.checkpoint();
    if (is_new) keep(running);
    // The end of the answer will stand for the end of the prompt, where a text can be cut anywhere.
    if (is_new && (has_windows_ || !running.spec.memory.keeps_all())) write_to_disk(running);
  });
  for (int i = 1; i < running.spec.choices; ++i)
    running.choices.push_back({running.choices[0].session.fork(),
                               AnswerWriter(model_->tokenizer(), running.spec, i, running.max_tokens),
                               {}});
  for (Choice& choice : running.choices) advance(running, choice);
}

void Lane::advance(Running& running, Choice& choice) {
  const std::int64_t before = choice.writer.written();
  choice.next = choice.writer.choose(choice.session.logits());
  written_ += choice.writer.written() - before;
  if (choice.next && choice.session.room() < 1) {
    choice.writer.end(StopReason::context_full);
    choice.next.reset();
  }
  tell(running, choice);
}

void Lane::tell(Running& running, Choice& choice) {
  const int index = static_cast<int>(&choice - running.choices.data());
  if (choice.writer.has_piece()) running.listener->piece(choice.writer.take());
  if (choice.writer.ended()) running.listener->ended(index, choice.writer.reason(), choice.writer.stop());
}

void Lane::keep(Running& running) {
  if (running.choices.empty()) return;
  const State& state = running.choices[0].session.state();
  if (state.position() <= running.figures.cached_tokens) return;
  const bool apart = running.spec.from && running.spec.from->by_number;
  PrefixCache::Entry& entry = apart ? cache_.keep_apart(state.fork(), running.spec.key, true)
                                    : cache_.keep(state.fork(), running.spec.key);
  if (const auto drift = running.choices[0].session.drift())
    entry.drift = std::make_shared<const MeasuredDrift>(MeasuredDrift{*drift, state.position()});
}

void Lane::write_to_disk(const Running& running) {
  if (options_->disk == nullptr || running.choices.empty()) return;
  if (running.spec.from && running.spec.from->by_number) return;
  options_->disk->write(*model_, running.choices[0].session.state());
}

void Lane::note_drift(const Running& running) {
  if (running.choices.empty()) return;
  const auto drift = running.choices[0].session.drift();
  if (!drift) return;
  drift_.tokens += drift->tokens;
  drift_.output_error += drift->output.mean * static_cast<double>(drift->tokens);
}

std::int64_t Lane::finish() {
  std::int64_t gone = 0;
  for (auto at = running_.begin(); at != running_.end();) {
    Running& running = *at;
    const bool left = !running.is_over() && running.listener->gone();
    if (!left && !running.is_over()) {
      ++at;
      continue;
    }
    gone += left ? 1 : 0;
    for (const Choice& choice : running.choices) running.figures.written_tokens += choice.writer.written();
    running.figures.writing_ms = running.since.ms() - running.figures.prompt_ms;
    if_memory_allows([&] {
      note_drift(running);
      if (running.error && running.error->code() == ErrorCode::numeric) return;
      keep(running);
      write_to_disk(running);
      while (cache_.entries().size() > most_kept_ && cache_.evict()) {
      }
    });
    const std::shared_ptr<AnswerListener> listener = std::move(running.listener);
    std::optional<Error> error = std::move(running.error);
    const AnswerFigures figures = running.figures;
    at = running_.erase(at);
    if (error)
      tell_failure(*listener, *error);
    else if (!left)
      tell_end(*listener, figures);
  }
  return gone;
}

void Lane::add_to(StateBytes& bytes) const {
  cache_.add_to(bytes);
  for (const Running& running : running_)
    for (const Choice& choice : running.choices) {
      bytes.add(choice.session.state());
      if (const auto drift = choice.session.drift()) bytes.add(drift->bytes);
    }
}

}  // namespace kvtide::serve
