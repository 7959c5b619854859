// shadow.h: what attention over everything would have said: the measure of a procedural memory, while it
// runs.
//
// Rows are copied as they leave the window, or are rewritten in another type, in the types that they had first. For sampled
// tokens attention is computed once more, over the copies and the window, and compared with what the memory
// answered. Far rows are seen from where the memory sees them: beyond the trained length there is no other
// truth. Queries, keys and values are those of the run, which has seen the memory in the layers below: errors
// are those of one layer's attention, not their sum. Ownership: owns its copies, which are no part of a
// budget. Thread rules: one caller at a time; work is spread over the pool. Reads the state, never writes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/attend.h"
#include "kernels/kernels.h"
#include "state/procedural/drift_meter.h"
#include "state/state.h"

namespace kvtide {

class Shadow {
 public:
  // Throws Error(invalid_argument) when the state is not procedural or the layers are none of its compressed
  // ones.
  Shadow(const ShadowOptions& options, const KvState& state);

  // Right before a state seals blocks or rewrites rows: copies them.
  void keep(const KvState& state);
  void clear();

  // Called before and after a step: what was measured in a step that was dropped does not count.
  void begin_step() { seen_.clear(); }
  void end_step() noexcept;

  // Whether a layer is looked at in a step that holds a sampled token.
  bool looks_at(int layer, Pos first, std::int64_t tokens) const;
  // One layer of a step: what attend() was called with, and what came out: [tokens][heads * head_dim] and
  // [tokens][heads].
  void compare(ThreadPool& pool, const Kernels& kernels, const KvState& state, int layer,
               const AttendInput& input, const float* out, const float* log_mass);

  Drift drift() const;

 private:
  std::vector<std::vector<Span>> everything(const KvState& state, int layer,
                                            std::span<const std::vector<Span>> spans,
                                            const std::vector<ProceduralMemory::SealedBlock>& blocks) const;

  ShadowOptions options_;
  KvSpec shape_;                 // types of the copies, as the state began
  std::vector<LayerRows> rows_;  // of every layer; empty for those that are not looked at
  Pos copied_ = 0;               // positions below are copied
  DriftMeter meter_;
  struct Seen {
    int layer;
    SampledErrors errors;
  };
  std::vector<Seen> seen_;  // in this step
  std::int64_t tokens_ = 0;
  int first_compared_ = -1;  // layer: counts tokens
  double seconds_ = 0.0;
};

}  // namespace kvtide
