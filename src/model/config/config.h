// config.h: the shape of a model, range-checked once (read_config.h). Nothing above reads raw metadata.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvtide {

enum class RopeScaling { none, linear, yarn };

// How one group of layers rotates its queries and keys.
struct RopeConfig {
  double base = 10000.0;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1.0;                         // of linear and yarn scaling
  double original_context = 0.0;               // yarn: the context the model was first trained for
  double fast_turns = 32.0, slow_turns = 1.0;  // yarn: of the pairs that are kept, and of those stretched
  // Of cosines and sines. nullopt: 1, and of yarn 1 + 0.1 ln(factor).
  std::optional<double> magnitude = std::nullopt;
  // One per pair, or empty: frequencies are divided by these (llama 3, longrope).
  std::vector<float> divisors;
  // longrope: instead of `divisors`, for texts within original_context (longrope.h); empty: there is no choice.
  std::vector<float> short_divisors = {};
  bool whole_pairs = true;  // yarn: the pairs between which it blends are rounded to whole numbers
  bool still = false;       // positions turn nothing (NoPE): every frequency is 0
  int dims = 0;             // of a head that are rotated, where layers differ; 0: ModelConfig::rope_dims
  // Only so many pairs are turned, the first ones; the others stand still. nullopt: all of them.
  std::optional<int> turning = std::nullopt;
};

enum class Activation { silu, gelu, squared_relu };  // gelu: the tanh form
enum class NormKind { rms, layer };                  // layer: with the mean taken off, and a bias

// What mixes the tokens of a layer, if anything does.
enum class Mixer { attention, short_convolution, delta_net, state_space, none };

struct LayerConfig {
  Mixer mixer = Mixer::attention;
  std::optional<std::int64_t> window;  // sliding window, own position included; nullopt: sees everything
  int rope = 0;                        // index into ModelConfig::ropes
  bool routed = true;                  // has experts, where the model has any
  bool feed_forward = true;            // has one, or experts
  // Where layers differ in these; 0: as ModelConfig has them, for the layers without a window.
  int kv_heads = 0, head_dim = 0;
  std::int64_t hidden = 0;
  int rows_of = -1;              // the layer whose keys and values this one reads; -1: it has its own
  bool values_are_keys = false;  // before their norm and rotation
};

// Queries grow with their position, by 1 + rate * ln(1 + floor(position / period)).
struct QueryGrowth {
  double rate = 0.0;
  std::int64_t period = 1;
};

// What comes out for a token whose router chooses the slot behind the last expert.
enum class SkipSlot {
  identity,  // the slot's probability times the expert's input, as ZAYA1 was trained
  zero       // nothing, as transformers computes it
};

// gate' = min(gate, limit), up' = up within +-limit: (up' + 1) * gate' * sigmoid(alpha * gate').
struct ClampedGate {
  float alpha = 1.0f, limit = 1.0f;
};

// A feed-forward of several gated experts of which a router chooses some for every token (experts.h).
struct ExpertsConfig {
  int count = 0;
  std::int64_t router_width = 0;  // of ZAYA1's router, which has layers; 0: one matrix makes the scores
  SkipSlot skip = SkipSlot::identity;
  // Of routers of one matrix; of the other these stay as they are.
  int chosen = 1;           // experts of a token
  std::int64_t hidden = 0;  // inside an expert; 0: ModelConfig::hidden
  bool sigmoid = false;     // a share is the sigmoid of its score; else the softmax over all
  bool balanced = false;    // a bias per expert counts for the choice, and for that only
  bool shares_sum_to_1 = false;
  int groups = 1,
      groups_chosen = 1;     // only experts of so many groups, those whose best two are best, can be chosen
  float sum_epsilon = 0.0f;  // is added to the sum that shares are divided by
  float share_scale = 1.0f;
  bool biased = false;                 // the matrices of experts and of the router have biases
  bool gate_up_turns = false;          // of experts whose gate and up are one matrix: their rows take turns
  std::optional<ClampedGate> clamped;  // instead of silu(gate) * up
  bool beside = false;        // a feed-forward that every token passes stands beside them (feed_forward.h)
  std::int64_t shared = 0;    // inside an expert that every token passes besides; 0: there is none
  bool shared_gated = false;  // its output is scaled by a sigmoid of the token
  int slots() const { return router_width > 0 ? count + 1 : count; }
};

// A recurrence that keeps a matrix per head (delta_net.h).
struct DeltaNetConfig {
  int key_heads = 0, value_heads = 0;  // the first divides the second
  int key_dim = 0, value_dim = 0;      // of a head
  int taps = 0;                        // of the convolution before it
  // Which key head value head h goes with: h % key_heads, as in GGUF files; else h / (value_heads / key_heads).
  bool tiled = false;
  std::int64_t key_width() const { return std::int64_t{key_heads} * key_dim; }
  std::int64_t value_width() const { return std::int64_t{value_heads} * value_dim; }
  std::int64_t channels() const { return 2 * key_width() + value_width(); }
};

// Mamba-2's recurrence (state_space.h).
struct StateSpaceConfig {
  int heads = 0, head_dim = 0;
  int state = 0;                             // how many numbers a head keeps for each of its own
  int groups = 0;                            // of heads that read and write alike; divides heads
  int taps = 0;                              // of the convolution before it
  bool biased = false, conv_biased = false;  // its projections, the convolution
  std::int64_t inner() const { return std::int64_t{heads} * head_dim; }
  std::int64_t channels() const { return inner() + 2 * std::int64_t{groups} * state; }
};

// Attention that keeps one row for all heads (latent.h). ModelConfig::head_dim is rope + rank, and kv_heads 1.
struct LatentConfig {
  std::int64_t query_rank = 0;                 // of the queries' own latent; 0: they have none
  std::int64_t rank = 0;                       // of the latent that is kept
  std::int64_t nope = 0, rope = 0, value = 0;  // of a head: not rotated, rotated, its output
  float norm_epsilon = 1e-6f;
  bool interleaved = true;  // rotated pairs are neighbours in the file
};

struct ModelConfig {
  std::string architecture;
  std::int64_t context_length = 0;  // trained for
  std::int64_t vocab = 0;
  std::int64_t width = 0;   // of the residual stream
  std::int64_t hidden = 0;  // of the feed-forward
  int heads = 0, kv_heads = 0, head_dim = 0;
  int rope_dims = 0;  // leading dimensions of a head that are rotated
  bool rope_interleaved =
      false;  // pairs are (2 i, 2 i + 1) in the file; rows are regrouped to halves when loaded
  float norm_epsilon = 0.0f;
  float attention_scale = 0.0f;
  float embedding_scale = 1.0f;
  float residual_scale = 1.0f;  // of what both halves of a layer add
  float logit_scale = 1.0f;
  float logit_cap = 0.0f;         // logits become cap * tanh(logit / cap); 0: they stay
  std::int64_t layer_inputs = 0;  // numbers that a token gives to every layer besides (layer_inputs.h)
  Activation activation = Activation::silu;
  bool head_norms = false;             // RMS norm of every query and key head
  bool value_norm = false;             // of values, without a weight
  bool heads_normed_together = false;  // head_norms: one norm over all heads of a row
  bool pre_norms = true;               // norm before attention and before the feed-forward
  bool post_norms = false;             // RMS norm after attention and after the feed-forward
  std::optional<QueryGrowth> query_growth;
  NormKind norm = NormKind::rms;
  bool gated = true;  // feed-forward and experts multiply activation(gate) with up; else activation(up)
  bool learned_positions = false;  // added to the embedding: positions end at context_length
  // Whether the output matrix is the embedding; nullopt: when the checkpoint has no other.
  std::optional<bool> tied_head;
  int conv_taps = 0;                    // of short convolutions (short_conv.h); 0: there are none
  bool conv_biased = false;             // they and their projections
  std::optional<DeltaNetConfig> delta;  // of layers with gated delta nets
  std::optional<StateSpaceConfig> state_space;
  std::optional<LatentConfig> latent;  // of attention that keeps latents
  bool attention_sinks = false;        // every head has a learned score beside those of the positions
  bool gated_attention = false;     // its result is scaled by a sigmoid of gates that lie beside the queries
  bool convolved = false;           // queries, keys and values as in cca.h; the next too then
  bool temperature_is_log = false;  // of keys: clamped and exponentiated before use
  bool scaled_residual = false;     // outputs and the stream are scaled where they meet (residual.h)
  std::optional<ExpertsConfig> experts;  // instead of one feed-forward
  std::vector<RopeConfig> ropes;
  bool short_rotation = false;  // loaded for texts within context_length only (longrope.h)
  std::vector<LayerConfig> layers;
};

// The layers that keep rows, in order: a state has these and no others.
std::vector<int> attention_layers(const ModelConfig& config);

// The heads of one layer.
struct HeadsConfig {
  int heads, kv_heads, head_dim;
  std::int64_t q_width() const { return std::int64_t{heads} * head_dim; }
  std::int64_t kv_width() const { return std::int64_t{kv_heads} * head_dim; }
};
HeadsConfig heads_of(const ModelConfig& config, int layer);
// Whether all layers have the same heads, and rows of their own.
bool even_layers(const ModelConfig& config);
std::int64_t hidden_of(const ModelConfig& config, int layer);  // of its feed-forward
int rope_dims_of(const ModelConfig& config, int rope);

// Whether layers carry more than rows from token to token.
inline bool carries(const ModelConfig& config) {
  return config.convolved || config.conv_taps > 0 || config.delta || config.state_space;
}

// Inside one expert.
inline std::int64_t expert_width(const ModelConfig& config) {
  return config.experts && config.experts->hidden > 0 ? config.experts->hidden : config.hidden;
}

// The rules that numbers of heads follow in any format; messages begin with `file`.
void check_heads(const std::string& file, const ModelConfig& config);
void check_experts(const std::string& file, const ExpertsConfig& experts);
void check_delta_net(const std::string& file, const DeltaNetConfig& net);
void check_state_space(const std::string& file, const StateSpaceConfig& space);

}  // namespace kvtide
