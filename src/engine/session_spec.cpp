#include "engine/session_spec.h"

#include <algorithm>

#include "base/text.h"
#include "base/thread_pool.h"
#include "kvtide/error.h"
#include "model/memory_shape.h"
#include "state/procedural/ladder.h"
#include "state/procedural/stages.h"
#include "state/state_object.h"
#include "tensor/element_type.h"

namespace kvtide {
namespace {

// Tokens that a model can always take back whose layers carry more than rows: as many as one draft has.
constexpr std::int64_t kDraft = 4;

}  // namespace

bool can_repeat(const ModelConfig& config) {
  return std::none_of(config.layers.begin(), config.layers.end(),
                      [](const auto& layer) { return layer.rows_of >= 0; });
}

KvSpec kv_spec(const ModelConfig& config, const SessionOptions& o) {
  KvSpec spec = memory_shape(config);
  spec.key_type = row_dtype(o.key_type);
  spec.value_type = row_dtype(o.value_type);
  spec.capacity = o.context;
  spec.max_step = o.prefill_chunk;
  spec.slack = o.slack;
  spec.checkpoints = o.checkpoints;
  spec.rolling = o.rolling;
  if (o.procedural) {
    spec.procedural = procedural_spec(spec, attention_shape(config), *o.procedural);
    set_row_types(spec, row_types_at(spec, 0));
  }
  return spec;
}

SessionOptions completed(const ModelConfig& config, SessionOptions o) {
  const auto refuse = [](const std::string& why) { throw Error(ErrorCode::invalid_argument, why); };
  o.threads = ThreadPool::count(o.threads);
  if (o.context == 0) o.context = config.context_length;
  if (carries(config)) o.slack = std::max(o.slack, kDraft);
  if (o.rolling && o.rolling->sinks + o.rolling->window > o.context)
    refuse(cat(o.rolling->sinks, " sinks and a window of ", o.rolling->window, " do not fit a context of ",
               o.context));
  if (o.context < 1 || o.context > (std::int64_t{1} << 31))
    refuse(cat("the context must be between 1 and 2^31 tokens, not ", o.context));
  if (o.prefill_chunk < 1 || o.prefill_chunk > 65536)
    refuse(cat("the prefill chunk must be between 1 and 65536 tokens, not ", o.prefill_chunk));
  if (config.learned_positions && o.context > config.context_length)
    refuse(cat("a context of ", o.context, " does not fit this model: it has learned ", config.context_length,
               " positions, and none can be shifted or added"));
  if (config.short_rotation && o.context > config.context_length)
    refuse(cat("a context of ", o.context, " does not fit this model as it was loaded: for texts of at most ",
               config.context_length, " tokens, which it rotates differently; load it for a longer context"));
  o.prefill_chunk = std::min(o.prefill_chunk, o.context);
  if (o.auto_attention && o.attention_size) refuse("an attention size is either given or adapts itself");
  if (o.auto_attention && o.auto_attention->largest == 0)
    o.auto_attention->largest = std::max(o.auto_attention->smallest, config.context_length);
  if (o.auto_attention && o.rolling) o.auto_attention = within(*o.auto_attention, *o.rolling);
  if (o.procedural) {
    if (o.auto_attention)
      refuse("a procedural memory and an attention size that adapts itself cannot be combined");
    if (o.procedural->score == RowScore::repetition && !can_repeat(config))
      refuse(
          "rows cannot be ranked by repetition in this model, whose layers share theirs; use --kv-score "
          "mixed");
    SessionOptions plain = o;
    plain.procedural.reset();
    o.procedural = filled_in(kv_spec(config, plain), attention_shape(config), *o.procedural);
  }
  return o;
}

}  // namespace kvtide
