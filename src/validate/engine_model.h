// engine_model.h: a model of the engine as a model under test: its own forward pass into its own memory.
//
// Nothing is replaced but, when layers are isolated, what enters a layer.
// Ownership: refers to the Model, which must outlive it.
// Thread rules: one caller at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/thread_pool.h"
#include "kvtide/session.h"
#include "kvtide/validate.h"
#include "model/decoder.h"

namespace kvtide {

class EngineModel : public TestedModel {
 public:
  // options: types of keys and values, exact, kernels and threads are taken. largest_chunk: tokens of the
  // largest call. Throws Error as Session does.
  EngineModel(const Model& model, const SessionOptions& options, std::int64_t largest_chunk);

  int threads() const { return pool_.threads(); }
  TestedShape shape() const override;
  std::unique_ptr<TestedState> make_state(std::int64_t capacity) override;
  Reading read(TestedState& state, std::span<const TokenId> tokens, std::span<const float> inputs) override;
  HeldRows rows(TestedState& state, int layer) override;
  void truncate(TestedState& state, Pos length) override;
  std::unique_ptr<TestedState> fork(TestedState& state) override;
  std::unique_ptr<TestedState> through_snapshot(TestedState& state) override;
  // Opens a step, fills its rows and drops it: what stays in memory behind the newest token.
  void poison(TestedState& state, float value) override;
  // What is behind a state of such a model.
  static KvState& memory(TestedState& state);

 private:
  const Model& model_;
  const ModelConfig& config_;
  SessionOptions options_;
  std::int64_t largest_chunk_;
  const Kernels& kernels_;
  ThreadPool pool_;
  Workspace workspace_;
};

}  // namespace kvtide
