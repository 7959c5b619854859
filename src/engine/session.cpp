#include "kvtide/session.h"

#include <algorithm>
#include <bit>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "kernels/kernels.h"
#include "kvtide/error.h"
#include "model/decoder.h"
#include "model/loaded_model.h"
#include "state/state.h"

namespace kvtide {
namespace {

constexpr std::int64_t kLogitRows = 16;  // rows of logits computed at a time

SessionOptions completed(const Model& model, SessionOptions o) {
  const auto refuse = [](const std::string& why) { throw Error(ErrorCode::invalid_argument, why); };
  if (o.threads == 0)
    o.threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, ThreadPool::kMaxThreads);
  if (o.context == 0) o.context = model.context_length();
  if (o.context < 1 || o.context > (std::int64_t{1} << 31))
    refuse(cat("the context must be between 1 and 2^31 tokens, not ", o.context));
  if (o.prefill_chunk < 1 || o.prefill_chunk > 65536)
    refuse(cat("the prefill chunk must be between 1 and 65536 tokens, not ", o.prefill_chunk));
  o.prefill_chunk = std::min(o.prefill_chunk, o.context);
  return o;
}

StateSpec state_spec(const ModelConfig& config, const SessionOptions& o) {
  StateSpec spec;
  for (const auto& layer : config.layers)
    spec.layers.push_back({config.kv_heads, config.head_dim, layer.window});
  const auto dtype = [](KvType type) { return type == KvType::f16 ? DType::f16 : DType::f32; };
  spec.key_type = dtype(o.key_type);
  spec.value_type = dtype(o.value_type);
  spec.capacity = o.context;
  spec.max_append = o.prefill_chunk;
  return spec;
}

}  // namespace

struct Session::Impl {
  const Model* model;
  SessionOptions options;
  const Kernels& kernels;
  ThreadPool pool;
  KvState state;
  Workspace workspace;
  std::vector<float> rows;    // [kLogitRows][vocabulary], only when several rows are asked for
  std::vector<float> logits;  // [vocabulary] of the last token
  bool failed = false;

  Impl(const Model& m, const SessionOptions& o)
      : model(&m),
        options(completed(m, o)),
        kernels(options.kernels.empty() ? best_kernels() : kernels_by_name(options.kernels)),
        pool(options.threads),
        state(state_spec(m.internals().config, options)),
        workspace(m.internals().config, options.prefill_chunk) {}

  DecoderContext context() {
    return {model->internals().config, *model->internals().weights, kernels, pool, options.exact};
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
    const std::span<const float> hidden = forward(c, workspace, state, tokens, wanted);
    const std::int64_t width = c.config.width, vocab = c.config.vocab;
    if (read.on_logits && end - from > 0) {
      rows.resize(static_cast<std::size_t>(kLogitRows * vocab));
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
};

Session::Session(const Model& model, const SessionOptions& options)
    : impl_(std::make_unique<Impl>(model, options)) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

void Session::read(std::span<const TokenId> tokens, const ReadOptions& options) {
  Impl& s = *impl_;
  if (s.failed)
    throw Error(ErrorCode::numeric,
                "this session met numbers that are not finite and cannot go on; clear it first");
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count > s.state.room())
    throw Error(ErrorCode::context_full,
                cat("the context is full: it holds ", s.state.position(), " of ", s.state.capacity(),
                    " tokens and ", count, " more do not fit; use a larger context (-c) or a shorter text"));
  for (const TokenId token : tokens)
    if (token < 0 || token >= s.model->vocabulary())
      throw Error(ErrorCode::invalid_argument,
                  cat("token id ", token, " is outside the vocabulary of ", s.model->vocabulary()));
  const Pos from = options.logits_from < 0 ? s.state.position() + count : options.logits_from;
  if (count > 0) s.logits.clear();
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t chunk = std::min(s.options.prefill_chunk, count - done);
    const bool last = done + chunk == count;
    try {
      s.read_chunk(tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(chunk)), from,
                   last && options.need_logits, options);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::numeric) s.failed = true;
      throw;
    }
    done += chunk;
    if (options.progress && !options.progress(done))
      throw Error(ErrorCode::cancelled, cat("stopped after ", done, " of ", count, " tokens"));
  }
}

std::span<const float> Session::logits() const { return impl_->logits; }
Pos Session::position() const { return impl_->state.position(); }
std::int64_t Session::context() const { return impl_->state.capacity(); }
const Model& Session::model() const { return *impl_->model; }
const SessionOptions& Session::options() const { return impl_->options; }

MemoryUse Session::memory() const {
  MemoryUse use;
  use.weights = impl_->model->weights_bytes();
  use.kv = impl_->state.held_bytes();
  use.scratch = impl_->workspace.bytes() + impl_->model->vocabulary_bytes() +
                static_cast<std::int64_t>((impl_->rows.size() + impl_->logits.size()) * sizeof(float));
  return use;
}

void Session::clear() {
  impl_->state.clear();
  impl_->logits.clear();
  impl_->failed = false;
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
