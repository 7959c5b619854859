// plain_decoder.h: the forward pass as the papers write it: the whole text at once, f32 weights, sums in
// double.
//
// The reference for models that come without one. It shares the reading of checkpoints with the engine and
// nothing else: no state, no cache, no kernel, no packed weights, angles and norms of its own. Slow: one
// decoded weight row after another. Knows llama, gemma3, qwen2, qwen3 and gpt2. Ownership: owns the
// checkpoint, refers to the pool. Thread rules: one caller at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kvtide/validate.h"
#include "model/checkpoint.h"

namespace kvtide {

class PlainDecoder final : public Reference {
 public:
  // Throws Error: what open_checkpoint throws, unsupported (another architecture).
  PlainDecoder(const std::string& path, ThreadPool& pool);

  std::string name() const override { return "a plain f32 forward pass of the same weights"; }
  Golden run(std::span<const TokenId> tokens) override;
  std::optional<std::vector<float>> twisted(int layer, std::span<const float> input,
                                            const Twist& twist) override;
  std::vector<double> frequencies(int layer) const override;

 private:
  struct Matrix;
  using Rows = std::vector<float>;  // [tokens][columns]

  Matrix matrix(Role role, int layer, std::int64_t rows, std::int64_t columns) const;
  std::vector<float> vector(Role role, int layer, std::int64_t n) const;
  Rows product(const Rows& x, const Matrix& m);
  Rows normed(const Rows& x, Role weight, Role bias, int layer) const;
  void add_bias(Rows& y, Role role, int layer, std::int64_t n) const;
  void attention(Rows& x, int layer, const Twist& twist, HeldRows* rows);
  void feed_forward(Rows& x, int layer);
  void norm_heads(Rows& y, Role role, int layer) const;
  void rotate(Rows& y, int layer, std::int64_t heads, std::int64_t shift) const;

  std::unique_ptr<Checkpoint> checkpoint_;
  const ModelConfig& config_;
  ThreadPool& pool_;
};

}  // namespace kvtide
