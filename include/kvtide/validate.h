// validate.h: whether a model that keeps a state computes what its reference computes, and if not, what is
// wrong.
//
//   Model model("model.gguf");
//   const auto tested = tested_model(model, {.exact = true});
//   const auto reference = plain_reference(model);
//   const ValidationReport report = validate(*tested, *reference, validation_text(model, 64));
//   if (!report.passed) show(report_text(report));
//
// The text is read in calls of several lengths, layers fed with the reference's inputs (isolated) and in a
// chain. Every layer and token is compared by the change the layer makes and by the sum; then the state's
// rows, the logits, and what happens to a state (rows that are no part of it, tokens taken back, copies, a
// full memory). When something differs, evidence is gathered: which calls, tokens, rows and heads differ and
// what they equal instead (docs/validator.md).
//
// A model under test is anything that reads tokens into a state: implement TestedModel. What it cannot do it
// leaves out and says so in its shape; one that gives logits only is judged by its logits.
// Ownership: states belong to the model that made them and do not outlive it.
// Thread rules: one caller at a time.
// Invariants
//   1. A state is at the position of the next token; reading appends, whatever the chunk.
//   2. Rows are those of the state after the last read, keys as they were rotated when written, pairs of a
//      rotation lying half a rotated width apart.
// Units: f32; shapes are given slowest axis first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvtide/coreml.h"
#include "kvtide/error.h"
#include "kvtide/session.h"
#include "kvtide/shard.h"
#include "kvtide/state.h"
#include "kvtide/types.h"

namespace kvtide {

struct TestedShape {
  std::string name;
  std::vector<StateLayer> layers;  // empty: a black box
  std::int64_t width = 0;          // of the residual stream
  std::int64_t vocab = 0;
  std::int64_t largest_chunk = 0;  // tokens of one call; 0: any number
  std::int64_t slots = 0;          // tokens that every state holds; 0: as many as make_state() is told
  // What the model can do beside reading.
  bool gives_hidden = false;    // Reading::hidden
  bool isolates = false;        // layers can be fed from outside
  bool gives_rows = false;      // rows()
  bool truncates = false;       // truncate()
  bool forks = false;           // fork()
  bool snapshots = false;       // through_snapshot()
  bool poisons = false;         // poison()
  bool keeps_capacity = false;  // make_state() obeys its capacity: more tokens must be refused
};

struct Reading {
  // [layers + 1][tokens][width]: as it enters layer 0, then behind every layer. Empty: not known.
  std::vector<float> hidden;
  std::vector<float> logits;  // [tokens][vocab], or [vocab]: the last token's
};

// What a state holds of one layer: rows of the positions first, first + 1, ...
struct HeldRows {
  std::int64_t kv_heads = 0, rows = 0, head_dim = 0;
  Pos first = 0;
  std::vector<float> keys, values;  // [kv_heads][rows][head_dim]

  std::span<const float> key(std::int64_t head, Pos position) const { return row(keys, head, position); }
  std::span<const float> value(std::int64_t head, Pos position) const { return row(values, head, position); }

 private:
  std::span<const float> row(const std::vector<float>& part, std::int64_t head, Pos position) const {
    return std::span(part).subspan(static_cast<std::size_t>((head * rows + position - first) * head_dim),
                                   static_cast<std::size_t>(head_dim));
  }
};

class TestedState {
 public:
  virtual ~TestedState() = default;
};

class TestedModel {
 public:
  virtual ~TestedModel() = default;
  virtual TestedShape shape() const = 0;
  // A new sequence with room for `capacity` tokens.
  virtual std::unique_ptr<TestedState> make_state(std::int64_t capacity) = 0;
  // inputs: empty, or [layers][tokens][width]: what every layer gets instead of what the one before it gave.
  virtual Reading read(TestedState& state, std::span<const TokenId> tokens,
                       std::span<const float> inputs) = 0;

  virtual HeldRows rows(TestedState&, int) { return cannot<HeldRows>("show its rows"); }
  virtual void truncate(TestedState&, Pos) { cannot<int>("take tokens back"); }
  virtual std::unique_ptr<TestedState> fork(TestedState&) {
    return cannot<std::unique_ptr<TestedState>>("be forked");
  }
  virtual std::unique_ptr<TestedState> through_snapshot(TestedState&) {
    return cannot<std::unique_ptr<TestedState>>("be saved");
  }
  // Puts `value` into every element of rows that are not part of the sequence.
  virtual void poison(TestedState&, float) { cannot<int>("be poisoned"); }

 private:
  template <class T>
  [[noreturn]] T cannot(const char* what) const {
    throw Error(ErrorCode::unsupported, std::string("the state of this model cannot ") + what);
  }
};

// A router that was nearly indifferent between two experts: rounding may make it take the other.
struct NearTie {
  int layer = 0;
  Pos token = 0;
  int expert = 0;             // the other one
  double margin = 0.0;        // of the choice, in probability
  std::vector<float> stream;  // [width] behind the layer, had the other been taken
};

// An expert that a router is to take, whatever it prefers.
struct RouterChoice {
  int layer = 0;
  Pos token = 0;
  int expert = 0;
};

struct Golden {
  std::vector<TokenId> tokens;
  std::int64_t layers = 0, width = 0, vocab = 0;
  std::vector<float> hidden;                   // [layers + 1][tokens][width]; empty: not known
  std::vector<float> logits;                   // [tokens][vocab]; empty: not known
  std::vector<HeldRows> rows;                  // per layer; empty: not known
  std::vector<NearTie> ties;                   // of routers, as far as they are known
  std::int64_t experts = 0, experts_used = 0;  // over all layers; 0: there are none, or not known

  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
  // The residual stream before layer `layer`; layer == layers: behind the last.
  std::span<const float> stream(std::int64_t layer, Pos token) const {
    return std::span(hidden).subspan(static_cast<std::size_t>((layer * size() + token) * width),
                                     static_cast<std::size_t>(width));
  }
};

// A mistake that ports make in the arithmetic of a layer. `number` of a Twist says more where it is named.
enum class Slip {
  none,
  // Norms, of the part that is named.
  norm_skipped,         // what enters is used as it is
  norm_weight_ignored,  // divided, and not multiplied
  norm_weight_plus,     // number is added to the weights
  norm_epsilon,         // number: what is added to the mean square
  norm_mean_kept,       // a layer norm without taking the mean off
  norm_mean_taken,      // an RMS norm that takes the mean off
  norm_bias_dropped,
  post_norm_skipped,  // of what a part gives
  query_norm_skipped,
  key_norm_skipped,
  head_norms_skipped,
  head_norms_late,  // behind the rotation
  // Projections.
  query_bias_dropped,
  key_bias_dropped,
  value_bias_dropped,
  projection_biases_dropped,  // all three
  output_bias_dropped,
  keys_and_values_swapped,
  query_heads_mixed,   // [heads, dim] read as [dim, heads]
  query_heads_rolled,  // by number heads
  output_heads_rolled,
  groups_by_remainder,  // head h reads h % KV heads
  // Rotation.
  rope_base,             // number
  rope_stretched,        // number: factor of all angles
  rope_unscaled,         // without the model's scaling
  rope_unmagnified,      // without the length that it gives
  rope_of_other_layers,  // the model has several kinds
  rope_paired_otherwise,
  rope_backwards,
  rope_skipped,
  rope_width,  // number: pairs
  angles_f16,
  angles_bf16,
  // Attention.
  score_unscaled,
  score_scaled_twice,
  score_scaled_by_head,  // by 1 / sqrt(head size), whatever the model says
  window_longer,         // number: of rows
  window_times,          // number
  window_ignored,
  score_cap,  // number
  sinks_ignored,
  latent_norm_skipped,
  softmax_f16,
  softmax_bf16,
  rows_int8,  // keys and values
  // Where parts meet.
  residual_dropped,
  residual_twice,
  residual_normed,         // the normed stream goes on
  parallel,                // both parts read what enters the layer
  residual_unscaled,       // without the model's scales and offsets
  weights_of_other_layer,  // number: which
  // Feed-forward.
  activation,  // number: an ActivationKind
  gate_and_up_swapped,
  gate_unclamped,  // of experts whose gates are
  // What zaya has of its own.
  convolution_skipped,
  convolution_reversed,  // older and newer column
  temperature_ignored,
  values_not_delayed,
  second_expert,
  balance_ignored,
  expert_groups_ignored,
  share_ignored,   // the expert's result is not multiplied by its probability
  carry_dropped,   // of the router's states
  skip_otherwise,  // the slot behind the experts gives nothing, or what it got
  shared_expert_dropped,
  // Recurrences: short convolutions and gated delta nets. (The slips of convolutions above mean these, too.)
  history_forgotten,    // what a convolution is handed from the tokens before Twist::carried_from
  state_forgotten,      // what a matrix is handed from them
  carried_forgotten,    // both
  state_decayed_twice,  // by the decay's square
  state_not_decayed,
  state_read_before,          // queries read the matrix as the token before left it
  delta_ignored,              // values are added, whatever the matrix gives for their key already
  rate_ignored,               // of learning: 1
  keys_not_normed,            // queries and keys, to length 1
  value_heads_grouped,        // value head h with key head h % key heads, or the other way round
  activation_skipped,         // behind the convolution
  gate_before_norm,           // what heads read is gated, then normed
  gate_behind_norm,           // of Mamba-2: the other way round
  groups_normed_together,     // of Mamba-2: one norm over all groups
  time_bias_dropped,          // of Mamba-2's steps
  skip_dropped,               // of Mamba-2: what goes past the matrix
  gate_skipped,               // of a recurrence, and of attention that is gated
  convolution_gates_swapped,  // the gate before a short convolution and the one behind it
  // Before and behind the layers.
  embedding_scale,    // number: factor
  positions_shifted,  // number, of learned ones
  head_transposed,
  logit_scale,  // number
  logit_cap,    // number
};
enum class ActivationKind { silu, gelu_tanh, gelu_erf, quick_gelu, relu, squared_relu, none };

// A way in which a layer is often computed wrongly: to see whether a wrong result is just that.
struct Twist {
  enum class Part { all, attention, feed_forward, head };

  // usual: what the model says. Empty: that.
  std::function<bool(Pos query, Pos row, bool usual)> visible = {};
  std::function<std::int64_t(Pos query)> empty_rows = {};  // rows of zeros that take part in the softmax
  std::int64_t query_shift = 0;                            // queries are rotated so many positions too far
  std::vector<Pos> mixed_chunks =
      {};  // starts of chunks, and the end: heads and tokens change places in them
  std::function<Pos(Pos token)> position = {};  // that a token's query and key are rotated for
  // The first token of which a recurrence hands anything to `token`, for slips that forget. Empty: the first of all.
  std::function<Pos(Pos token)> carried_from = {};
  Slip slip = Slip::none;
  double number = 0.0;
  Part part = Part::all;
};

// What a layer gives when it is computed with a twist.
struct TwistedLayer {
  std::vector<float> stream;     // [tokens][width]
  std::optional<HeldRows> rows;  // nullopt: not told
};

class Reference {
 public:
  virtual ~Reference() = default;
  virtual std::string name() const = 0;
  // The one text that it knows; nullopt: any.
  virtual std::optional<std::vector<TokenId>> text() const { return std::nullopt; }
  // Greedy continuation of text(), where that is known.
  virtual std::vector<TokenId> continuation() const { return {}; }
  virtual Golden run(std::span<const TokenId> tokens) = 0;
  // The same with some choices of routers made for it. nullopt: the reference cannot.
  virtual std::optional<Golden> run_choosing(std::span<const TokenId> /*tokens*/,
                                             std::span<const RouterChoice> /*choices*/) {
    return std::nullopt;
  }
  // One layer, fed with input [tokens][width] of positions 0, 1, .... A slip that means nothing to the model
  // changes nothing. nullopt: the reference cannot say.
  virtual std::optional<TwistedLayer> twisted(int /*layer*/, std::span<const float> /*input*/,
                                              const Twist& /*twist*/) {
    return std::nullopt;
  }
  // Near ties of routers on what a text's layers get elsewhere, as far as the reference has routers.
  virtual std::vector<NearTie> ties_of(const Golden& /*golden*/) { return {}; }
  // What enters layer 0, and what comes of the stream behind the last layer, [tokens][vocab].
  virtual std::optional<std::vector<float>> twisted_embedding(std::span<const TokenId> /*tokens*/,
                                                              const Twist& /*twist*/) {
    return std::nullopt;
  }
  virtual std::optional<std::vector<float>> twisted_head(std::span<const float> /*stream*/,
                                                         const Twist& /*twist*/) {
    return std::nullopt;
  }
  // The logits of a text when every layer is computed with a twist, for each of several, which share the work of
  // reading weights: give(index, [tokens][vocab]), in order. false: the reference cannot say.
  virtual bool twisted_logits(std::span<const TokenId> /*tokens*/, std::span<const Twist* const> /*twists*/,
                              const std::function<void(std::size_t, std::vector<float>)>& /*give*/) {
    return false;
  }
  // How keys are rotated: radians per position of the pairs (i, i + size). Empty: not, or not known.
  virtual std::vector<double> frequencies(int /*layer*/) const { return {}; }
};

// A finding says what was measured and what that points at. `cause` is a stable name (docs/validator.md).
struct Finding {
  std::string cause;
  std::string check;         // that found it
  std::optional<int> layer;  // first one that is wrong; nullopt: no single layer
  std::optional<Pos> token;  // first one that is wrong
  std::string calls;         // how the text was cut: "calls of 4"; empty: in whatever way
  double cosine = 1.0;       // the worst
  std::string what;          // sentences: what was seen
  std::string advice;        // a sentence: where to look
};

// What is no fault and should be known: a stable name ("router_tie") and sentences.
struct Note {
  std::string name, what;
};

enum class Outcome { passed, failed, skipped };
const char* outcome_name(Outcome outcome) noexcept;

struct CheckResult {
  std::string name;
  Outcome outcome = Outcome::passed;
  std::string detail;  // figures, or why it was skipped
};

// Of every layer and token: [layers][tokens]. Change: what the layer adds; sum: the stream behind it.
struct LayerTable {
  std::int64_t layers = 0, tokens = 0;
  std::vector<float> change_cosine, change_error, sum_cosine, sum_error;  // error: max-abs
};

// The text read in calls of so many tokens.
struct ScheduleResult {
  std::string name;
  std::vector<std::int64_t> calls;
  LayerTable isolated;                   // every layer fed with the reference's input; empty: not measured
  LayerTable chained;                    // every layer fed by the one before
  double kl_mean = 0.0, kl_worst = 0.0;  // nats, KL(reference || model)
  double logits_cosine = 1.0, logits_error = 0.0;
  std::int64_t top_same = 0, top_asked = 0;  // tokens whose likeliest next token is the reference's
  bool same_bits = false;                    // as the first schedule, in all that came out
};

struct TokenNote {
  Pos token = 0;
  std::string why;  // "special token", "tiny embedding"
  double cosine = 1.0;
};

struct ValidationReport {
  bool passed = true;
  std::string model, reference;
  std::string arithmetic;  // of the model, in words; empty: not known
  std::vector<TokenId> tokens;
  double gate = 0.0;        // cosine per layer and token
  double apart_gate = 0.0;  // of the tokens that are listed apart
  std::vector<ScheduleResult> schedules;
  std::vector<TokenNote> apart;
  std::vector<CheckResult> checks;
  std::vector<Finding> findings;  // the likeliest cause first
  std::vector<Note> notes;
};

struct ValidateOptions {
  std::vector<std::int64_t> chunks = {1, 2, 3, 4, 7};
  double gate = 0.9999;        // cosine per layer and token
  double apart_gate = 0.9999;  // of special tokens and tiny embeddings
  double row_gate = 0.9999;    // cosine of rows of the state
  // What a residual stream loses when a layer adds to it, as a part of it: of f32 here. What a layer adds is
  // not judged any closer.
  double stream_rounding = 2.4e-7;
  // Errors that the gate lets pass are told apart: f32 arithmetic has to leave hardly any, coarser arithmetic
  // may, known mistakes may not.
  bool precision = false;
  std::int64_t free_tokens = 16;  // greedy tokens of the free run; 0: none
  // Tokens of a second, longer text, in one cut of mixed lengths: to pass windows, fill states, and reach
  // positions where counters end. It goes on with ids of the first in another order. 0: none.
  std::int64_t length = 0;
  std::vector<TokenId> special;                                       // ids that are listed apart
  std::string arithmetic;                                             // of the model, for the report
  std::function<bool(double share, std::string_view what)> progress;  // false stops: Error(cancelled)
};

// Throws Error: invalid_argument (shapes that do not fit each other, too short a text), cancelled, and what
// the reference throws. What the model under test throws is a finding.
ValidationReport validate(TestedModel& model, Reference& reference, std::span<const TokenId> tokens,
                          const ValidateOptions& options = {});

// A model of the engine: its own forward pass into its own memory. Of the options the types of keys and
// values, exact, kernels and threads are taken. largest_chunk: tokens of the largest call. Refers to the
// model. Throws Error as Session does.
std::unique_ptr<TestedModel> tested_model(const Model& model, const SessionOptions& options = {},
                                          std::int64_t largest_chunk = 64);

// The forward pass as the papers write it: the whole text at once, f32 weights, sums in double. Throws Error:
// unsupported (an architecture that it does not know), and what loading throws. threads: 0: all.
std::unique_ptr<Reference> plain_reference(const Model& model, int threads = 0);

// A folder of NumPy files (docs/validator.md). Throws Error: not_found, bad_format.
std::unique_ptr<Reference> golden_reference(const std::string& folder);

// Whether all matrices of a model are floats: then SessionOptions::exact leaves nothing rounded but the rows.
bool has_float_weights(const Model& model);

// What a model of the engine has to reach, by its arithmetic: 0.9999 where everything is f32 but for f16 rows
// (SessionOptions::exact); 0.999 where attention multiplies bf16; 0.97 where products are those of 8-bit
// integers or rows are q8_0, and 0.90 then for special tokens and tiny embeddings. special: the vocabulary's
// markers.
ValidateOptions usual_gates(const Model& model, const SessionOptions& options);

// `tokens` tokens of made-up prose, behind the start token where the vocabulary wants one; of a vocabulary
// that cannot spell it, ids spread over all of it.
std::vector<TokenId> validation_text(const Tokenizer& tokenizer, std::int64_t tokens);
std::vector<TokenId> validation_text(const Model& model, std::int64_t tokens);
std::vector<TokenId> validation_text_of_shards(const std::string& folder, std::int64_t tokens);
// By the tokenizer of a GGUF file or a Hugging Face folder; the weights are not loaded.
std::vector<TokenId> validation_text_of_model(const std::string& path, std::int64_t tokens);

// A folder of shards (kvtide/shard.h) as a model under test: every shard called as a host calls it, layer by
// layer. Its calls take t_max tokens at most. Throws Error as ShardFolder does.
std::unique_ptr<TestedModel> tested_shards(const std::string& folder, const ShardOptions& options = {});
// The plain forward pass with the weights that the shards hold. Throws Error as ShardFolder does.
std::unique_ptr<Reference> plain_shard_reference(const std::string& folder, int threads = 0);
// 0.9999; 0.97 and 0.90 for 8-bit shards that are compared with the model they were made of.
ValidateOptions usual_shard_gates(const std::string& folder, bool against_original);

// A language model in Core ML packages (kvtide/coreml.h): one, or a folder of several, called as its exporter meant it. Hidden
// states and rows are there where every layer has a package of its own. Throws Error: unsupported, and as CoremlModel does.
std::unique_ptr<TestedModel> tested_packages(const std::string& path, const CoremlOptions& options = {});
// By the types of their weights: 0.999 for floats; 0.97 and 0.90 for fewer bits.
ValidateOptions usual_package_gates(const std::string& path);

// Whichever it is: a GGUF file, a Hugging Face folder or a folder of shards as a plain forward pass of their
// weights, or a folder of golden arrays. Throws Error: what reading these throws.
std::unique_ptr<Reference> open_reference(const std::string& path, int threads = 0);
// Golden arrays that know, from the weights of `plain`, where routers are nearly indifferent, and that can be
// computed with twists.
std::unique_ptr<Reference> with_weights(std::unique_ptr<Reference> arrays, std::unique_ptr<Reference> plain);
// Whether such a path holds weights, so that compare_shards can compare with them.
bool holds_weights(const std::string& path);
// Adds to a report on a folder of shards what its manifest, its vocabulary and its weights are beside those of
// `model` (as open_reference; golden arrays and "" have none, and a note then says that weights were not
// compared).
void compare_shards(ValidationReport& report, const std::string& folder, const std::string& model);

// The verdict, what is wrong and what to do, the checks, the worst layers and tokens. Ends with a line feed.
std::string report_text(const ValidationReport& report);
// A page that needs nothing from elsewhere.
std::string report_html(const ValidationReport& report);

}  // namespace kvtide
