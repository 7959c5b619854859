#include <algorithm>
#include <cstring>
#include <utility>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "engine/session_impl.h"

namespace kvtide {
namespace {

[[noreturn]] void refuse_step(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, cat("this step cannot be made: ", why));
}

bool has_read(const PassRows& rows) { return rows.not_finite.empty() && !rows.failure; }

Error error_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::bad_alloc&) {
    return {ErrorCode::out_of_memory, "out of memory"};
  } catch (Error& error) {
    return std::move(error);
  }
}

BatchOptions filled_in(BatchOptions options) {
  if (options.max_step < 1)
    throw Error(ErrorCode::invalid_argument,
                cat("a batch of ", options.max_step, " tokens per step; it must be at least 1"));
  options.threads = ThreadPool::count(options.threads);
  return options;
}

}  // namespace

struct Batch::Impl {
  const Model* model;
  BatchOptions options;
  const Kernels& kernels;
  ThreadPool pool;
  Workspace workspace;
  PassTimes times;
  std::vector<float> hidden, logits;  // of the items that want logits: [n][width], [n][vocabulary]

  Impl(const Model& m, const BatchOptions& o)
      : model(&m),
        options(filled_in(o)),
        kernels(options.kernels.empty() ? best_kernels() : kernels_by_name(options.kernels)),
        pool(options.threads),
        workspace(m.internals().config, options.max_step) {}

  // An item that takes part in the pass.
  struct Taker {
    std::size_t item;
    Session::Impl* session;
    std::span<const TokenId> tokens;
    bool need_logits;
    std::int64_t unwanted() const { return static_cast<std::int64_t>(tokens.size()) - (need_logits ? 1 : 0); }
  };

  // A pass of so many rows of logits needs this much before it may begin.
  void reserve(std::span<const Taker> takers) {
    const auto rows = static_cast<std::size_t>(
        std::count_if(takers.begin(), takers.end(), [](const Taker& taker) { return taker.need_logits; }));
    const ModelConfig& config = model->internals().config;
    hidden.resize(rows * static_cast<std::size_t>(config.width));
    logits.resize(rows * static_cast<std::size_t>(config.vocab));
  }

  DecoderContext context(bool exact) {
    return {model->internals().config, *model->internals().weights, kernels, pool, {}, exact, &times};
  }

  void pass(std::span<const Taker> takers, std::vector<Outcome>& outcomes);
  void give_logits(std::span<const Taker> takers, std::span<const PassRows> rows);
};

void Batch::Impl::pass(std::span<const Taker> takers, std::vector<Outcome>& outcomes) {
  std::vector<PassPart> parts;
  parts.reserve(takers.size());
  for (const Taker& taker : takers) {
    Session::Impl& s = *taker.session;
    if (s.shadow) s.shadow->begin_step();
    parts.push_back({s.state, taker.tokens, taker.need_logits ? 1 : 0, {}, s.shadow.get()});
  }
  const std::vector<PassRows> rows = forward(context(takers[0].session->options.exact), workspace, parts);
  // From here on the memories have their tokens: noting them takes no memory.
  for (std::size_t i = 0; i < takers.size(); ++i) {
    Session::Impl& s = *takers[i].session;
    if (!rows[i].not_finite.empty()) {
      s.failed = true;
      outcomes[takers[i].item].error.emplace(ErrorCode::numeric, rows[i].not_finite);
      continue;
    }
    if (rows[i].failure) {
      outcomes[takers[i].item].error = error_of(rows[i].failure);
      continue;
    }
    s.read_tokens.insert(s.read_tokens.end(), takers[i].tokens.begin(), takers[i].tokens.end());
    s.logits.clear();
    outcomes[takers[i].item].read = static_cast<std::int64_t>(takers[i].tokens.size());
    if (s.shadow) s.shadow->end_step();
  }
  give_logits(takers, rows);
}

// One product for the last hidden rows of all.
void Batch::Impl::give_logits(std::span<const Taker> takers, std::span<const PassRows> rows) {
  const ModelConfig& config = model->internals().config;
  const auto width = static_cast<std::size_t>(config.width), vocab = static_cast<std::size_t>(config.vocab);
  std::int64_t count = 0;
  for (std::size_t i = 0; i < takers.size(); ++i)
    if (takers[i].need_logits && has_read(rows[i]))
      std::memcpy(hidden.data() + static_cast<std::size_t>(count++) * width, rows[i].hidden.data(),
                  width * sizeof(float));
  if (count == 0) return;
  kvtide::logits(context(takers[0].session->options.exact), workspace, hidden.data(), count, logits.data());
  const float* row = logits.data();
  for (std::size_t i = 0; i < takers.size(); ++i)
    if (takers[i].need_logits && has_read(rows[i])) {
      takers[i].session->logits.assign(row, row + vocab);
      row += vocab;
    }
}

Batch::Batch(const Model& model, const BatchOptions& options) try
    : impl_(std::make_unique<Impl>(model, options)) {
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}
Batch::~Batch() = default;
Batch::Batch(Batch&&) noexcept = default;
Batch& Batch::operator=(Batch&&) noexcept = default;

const BatchOptions& Batch::options() const { return impl_->options; }
PassTimes Batch::times() const { return impl_->times; }

std::vector<Batch::Outcome> Batch::step(std::span<const Item> items) try {
  Impl& b = *impl_;
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Session::Impl& s = *items[i].session->impl_;
    if (s.model != b.model) refuse_step(cat("session ", i, " is of another model than the batch"));
    if (s.options.exact != items[0].session->impl_->options.exact)
      refuse_step(cat("sessions 0 and ", i, " differ in `exact`"));
    if (items[i].tokens.empty()) refuse_step(cat("session ", i, " is to read no tokens"));
    for (std::size_t other = 0; other < i; ++other)
      if (items[other].session == items[i].session)
        refuse_step(cat("sessions ", other, " and ", i, " are one"));
    tokens += static_cast<std::int64_t>(items[i].tokens.size());
  }
  if (tokens > b.options.max_step)
    refuse_step(
        cat(tokens, " tokens; a step of this batch takes at most ", b.options.max_step, " (max_step)"));

  std::vector<Outcome> outcomes(items.size());
  std::vector<Impl::Taker> takers;
  for (std::size_t i = 0; i < items.size(); ++i) try {
      Session::Impl& s = *items[i].session->impl_;
      s.check(items[i].tokens);
      // Due only when the seal behind the step before failed: a disk that had no room may have some now.
      s.seal_if_due(b.pool);
      const auto count = static_cast<std::size_t>(std::min(
          {static_cast<std::int64_t>(items[i].tokens.size()), s.options.prefill_chunk, s.state.step_room()}));
      const bool need_logits = items[i].need_logits && count == items[i].tokens.size();
      s.reserve(count, need_logits);
      takers.push_back({i, &s, items[i].tokens.first(count), need_logits});
    } catch (const Error& error) {
      outcomes[i].error = error;
    }
  if (takers.empty()) return outcomes;
  // The pass leaves out what nobody wants of its first part.
  std::iter_swap(takers.begin(),
                 std::max_element(takers.begin(), takers.end(),
                                  [](const auto& a, const auto& c) { return a.unwanted() < c.unwanted(); }));
  b.reserve(takers);
  b.pass(takers, outcomes);
  for (const Impl::Taker& taker : takers) try {
      if (!outcomes[taker.item].error) taker.session->seal_if_due(b.pool);
    } catch (Error& error) {
      outcomes[taker.item].error = std::move(error);
    } catch (const std::bad_alloc&) {  // the others have read their tokens, and must hear of it
      outcomes[taker.item].error.emplace(ErrorCode::out_of_memory, "out of memory");
    }
  return outcomes;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
