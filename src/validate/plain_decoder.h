// plain_decoder.h: the forward pass as the papers write it: the whole text at once, f32 weights, sums in
// double.
//
// The reference for models that come without one. It shares the reading of checkpoints with the engine and
// nothing else: no state, no cache, no kernel, no packed weights, angles and norms of its own. Slow: one
// decoded weight row after another. Knows every architecture that the engine knows but those that require_known
// names; what zaya has of its own is in plain_hybrid.cpp, layers without attention in plain_recurrence.cpp.
// Ownership: owns the weights, refers to the pool.
// Thread rules: one caller at a time.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "kvtide/validate.h"
#include "validate/plain_weights.h"

namespace kvtide {

class PlainDecoder final : public Reference {
 public:
  PlainDecoder(std::unique_ptr<PlainWeights> weights, ThreadPool& pool);
  // Throws what plain_weights throws.
  PlainDecoder(const std::string& path, ThreadPool& pool);

  std::string name() const override { return "a plain f32 forward pass of the same weights"; }
  Golden run(std::span<const TokenId> tokens) override;
  // Layers below the first choice are taken from the last run of the same text.
  std::optional<Golden> run_choosing(std::span<const TokenId> tokens,
                                     std::span<const RouterChoice> choices) override;
  std::vector<NearTie> ties_of(const Golden& golden) override;
  std::optional<TwistedLayer> twisted(int layer, std::span<const float> input, const Twist& twist) override;
  std::optional<std::vector<float>> twisted_embedding(std::span<const TokenId> tokens,
                                                      const Twist& twist) override;
  std::optional<std::vector<float>> twisted_head(std::span<const float> stream, const Twist& twist) override;
  bool twisted_logits(std::span<const TokenId> tokens, std::span<const Twist* const> twists,
                      const std::function<void(std::size_t, std::vector<float>)>& give) override;
  std::vector<double> frequencies(int layer) const override;

 private:
  using Rows = std::vector<float>;  // [tokens][columns]
  // A layer's input in a text that was read, and what the router of the layer before had of it.
  struct Pass {
    int layer;
    Rows input, router;
  };

  PlainMatrix matrix(Role role, int layer, std::int64_t rows, std::int64_t columns) const;
  PlainMatrix decoded_once(PlainMatrix matrix, Role role, int layer) const;
  std::vector<float> vector(Role role, int layer, std::int64_t n) const;
  Rows product(const Rows& x, const PlainMatrix& m);
  Rows normed(const Rows& x, Role weight, Role bias, int layer) const;
  void add_bias(Rows& y, Role role, int layer, std::int64_t n) const;
  Rows embedded(std::span<const TokenId> tokens) const;
  // Golden's layers from `first` on, behind those that it has.
  void run_layers(Golden& golden, Rows x, int first);
  void attention(Rows& x, int layer, const Twist& twist, HeldRows* rows);
  // Instead of attention; plain_recurrence.cpp.
  class Recurrence;
  void recurrence(Rows& x, int layer);
  Rows short_convolution(const Rows& input, int layer);
  Rows delta_net(const Rows& input, int layer);
  Rows state_space(const Rows& input, int layer);
  std::vector<double> scanned(const std::vector<double>& mixed, const Rows& steps, int layer,
                              const Recurrence& recurrence);
  Rows gated_and_normed(const std::vector<double>& read, const Rows& gates, int layer) const;
  // Latent attention; plain_latent.cpp.
  struct LatentHead {
    Rows keys, values;
  };
  LatentHead latent_head(int layer, std::int64_t head) const;
  void latents(const Rows& input, int layer, Rows& q, Rows& k, Rows& v);
  Rows expanded(const Rows& mixed, int layer);
  void projections(const Rows& input, int layer, Rows& q, Rows& k, Rows& v, Rows& gates);
  Rows gated_queries(const Rows& input, int layer, Rows& gates);
  Rows mixed_values(const Rows& q, const Rows& k, const Rows& v, int layer, const Twist& twist);
  HeldRows by_heads(const Rows& k, const Rows& v) const;
  void feed_forward(Rows& x, int layer, const Rows& entered);
  // One token's: of rows that are as long as the vectors. gate: empty where there is none.
  void activate(const Rows& gate, Rows& up) const;
  void norm_queries_and_keys(Rows& q, Rows& k, int layer) const;
  void grow_queries(Rows& q) const;
  Rows logits_of(const Rows& x);
  void norm_heads(Rows& y, Role role, int layer) const;
  void rotate(Rows& y, int layer, std::int64_t heads, std::int64_t shift) const;

  // Output and stream with their scales and offsets, where the model has these.
  static constexpr Role kAttentionScales[] = {Role::attention_output_scale, Role::attention_output_offset,
                                              Role::attention_residual_scale,
                                              Role::attention_residual_offset};
  static constexpr Role kFeedForwardScales[] = {
      Role::feed_forward_output_scale, Role::feed_forward_output_offset, Role::feed_forward_residual_scale,
      Role::feed_forward_residual_offset};
  void join(Rows& x, const Rows& y, int layer, const Role (&scales)[4]) const;
  void scale_embedding(float* row) const;
  Rows values_of_two_tokens(const Rows& input, int layer);
  void convolve(Rows& q, Rows& k, int layer) const;
  void experts(Rows& x, int layer);
  Rows router_scores(const Rows& input, int layer);
  std::vector<double> router_shares(std::span<const float> scores) const;
  Rows shared_expert(const Rows& input, int layer);
  std::vector<std::int64_t> ranked(const std::vector<double>& wanted) const;
  Rows mixture(const Rows& input, int layer, std::span<const std::int64_t> chosen,
               const std::vector<double>& shares);
  // rows[width] of one token: what an expert, or the slot behind the last, makes of its input.
  Rows expert(const Rows& input, int layer, std::int64_t chosen, double share);
  Rows inside_expert(const Rows& input, int layer, std::int64_t chosen);
  void add_expert_bias(Rows& y, Role role, int layer, std::int64_t chosen) const;
  void clamp_and_gate(const Rows& gate, Rows& up) const;

  // What a twist makes of it; plain_slips.cpp.
  class Twisted;
  class Decoding;
  struct NormPlan {
    std::vector<float> weight, bias;
    bool skipped = false, takes_mean = false;
    double epsilon = 0.0;
  };
  struct Rotation {
    std::vector<double> frequencies;
    double magnitude = 1.0;
    bool paired_otherwise = false;
    float (*rounded)(float) = nullptr;  // the angles
    double angle(Pos position, std::size_t pair) const;
  };
  bool slips(Slip slip, Twist::Part part = Twist::Part::all) const;
  bool drops(Role bias) const;
  NormPlan norm_plan(Role weight, Role bias, int layer) const;
  double head_epsilon() const;
  Rotation rotation(int layer) const;
  void mix_heads(Rows& q) const;
  void roll_heads(Rows& heads) const;
  void round_rows(Rows& rows) const;
  std::optional<std::int64_t> twisted_window(int layer) const;
  double twisted_score(double score) const;
  double rounded_weight(double weight) const;
  ActivationKind activation_kind() const;
  static double activated(ActivationKind kind, double x);
  static PlainMatrix transposed(const PlainMatrix& head);
  void twist_logits(Rows& logits) const;

  std::unique_ptr<PlainWeights> weights_;
  const ModelConfig& config_;
  ThreadPool& pool_;
  // Matrices that were decoded as a whole, while several passes go through a layer; nullopt: rows are decoded as
  // they are used.
  mutable std::optional<std::map<std::pair<Role, int>, std::shared_ptr<const std::vector<float>>>> decoded_;
  Rows router_;               // [tokens][router width], of the layer before
  std::vector<Pass> passes_;  // of models with experts, of every text so far
  std::vector<NearTie> ties_;
  bool both_ways_ = false;  // ties are told with what either expert gives: whose choice it is is not known
  Twist twist_;             // of what is computed now
  Golden last_;             // of models with experts: the last run
  std::set<std::pair<int, std::int64_t>> used_;  // layers and experts
  std::map<std::pair<int, Pos>, int> choices_;   // layer and token: the expert that is to be taken
};

// threads: 0: all.
std::unique_ptr<Reference> plain_reference(std::unique_ptr<PlainWeights> weights, int threads);

}  // namespace kvtide
