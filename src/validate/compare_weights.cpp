#include "validate/compare_weights.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text.h"
#include "shards/manifest.h"
#include "shards/tokenizer_export.h"
#include "validate/measure.h"

namespace kvtide {
namespace {

// A matrix or a vector of a layer by what it is: of matrices rows and columns, of vectors rows 0.
struct WeightPart {
  Role role;
  const char* name;
  std::int64_t rows = 0, columns = 0;
};

const char* name_of(Activation activation) {
  switch (activation) {
    case Activation::gelu:
      return "gelu";
    case Activation::squared_relu:
      return "squared relu";
    case Activation::silu:
      break;
  }
  return "silu";
}

std::vector<WeightPart> attention_parts(const ModelConfig& c) {
  const std::int64_t heads = std::int64_t{c.heads} * c.head_dim, keys = std::int64_t{c.kv_heads} * c.head_dim;
  const std::int64_t values = c.convolved ? keys / 2 : keys;
  std::vector<WeightPart> out = {
      {Role::attention_norm, "the norm before attention", 0, c.width},
      {Role::query, "queries", heads, c.width},
      {Role::key, "keys", keys, c.width},
      {Role::value, "values", values, c.width},
      {Role::attention_output, "the output of attention", c.width, heads},
      {Role::attention_norm_bias, "the bias of the norm before attention", 0, c.width},
      {Role::query_bias, "the bias of queries", 0, heads},
      {Role::key_bias, "the bias of keys", 0, keys},
      {Role::value_bias, "the bias of values", 0, keys},
      {Role::attention_output_bias, "the bias of attention's output", 0, c.width},
      {Role::query_norm, "the norm of query heads", 0, c.head_dim},
      {Role::key_norm, "the norm of key heads", 0, c.head_dim},
      {Role::attention_post_norm, "the norm behind attention", 0, c.width}};
  if (c.convolved) {
    const std::int64_t channels = heads + keys;
    out.push_back({Role::value_delayed, "delayed values", values, c.width});
    out.push_back({Role::conv_depthwise, "the first convolution", 0, channels * 2});
    out.push_back({Role::conv_grouped, "the second convolution", 0, channels * c.head_dim * 2});
    out.push_back({Role::key_temperature, "the temperature of keys", 0, c.kv_heads});
  }
  return out;
}

std::vector<WeightPart> feed_forward_parts(const ModelConfig& c) {
  std::vector<WeightPart> out = {
      {Role::feed_forward_norm, "the norm before the feed-forward", 0, c.width},
      {Role::feed_forward_norm_bias, "the bias of the norm before the feed-forward", 0, c.width},
      {Role::feed_forward_post_norm, "the norm behind the feed-forward", 0, c.width}};
  if (c.experts) {
    const std::int64_t n = c.experts->router_width;
    out.push_back({Role::router_down, "the router's input", n, c.width});
    out.push_back({Role::router_first, "the router's first matrix", n, n});
    out.push_back({Role::router_second, "the router's second matrix", n, n});
    out.push_back({Role::router_out, "the router's output", c.experts->count + 1, n});
    out.push_back({Role::router_balance, "the router's balance", 0, c.experts->count + 1});
    return out;
  }
  if (c.gated) out.push_back({Role::gate, "gate", c.hidden, c.width});
  out.push_back({Role::up, "up", c.hidden, c.width});
  out.push_back({Role::down, "down", c.width, c.hidden});
  out.push_back({Role::up_bias, "the bias of up", 0, c.hidden});
  out.push_back({Role::down_bias, "the bias of down", 0, c.width});
  return out;
}

// What rounding to f16 leaves, and to 8-bit integers with a scale for a row or for all.
constexpr double kF16 = 2e-3, kInt8 = 0.05, kInt8OneScale = 0.5;

class Comparison {
 public:
  Comparison(ValidationReport& report, const std::string& folder, const PlainWeights& shards,
             const PlainWeights& model)
      : report_(report), manifest_(read_manifest(folder)), shards_(shards), model_(model) {}

  void manifest() {
    const ModelConfig &a = shards_.config(), &b = model_.config();
    const auto same = [&](const char* what, auto x, auto y) {
      if (x == y) return;
      differs_.push_back(cat(what, " ", x, " for ", y));
    };
    const auto near = [&](const char* what, double x, double y) {
      if (std::abs(x - y) > 1e-6 * std::max(std::abs(x), std::abs(y)))
        differs_.push_back(cat(what, " ", x, " for ", y));
    };
    same("layers", a.layers.size(), b.layers.size());
    same("width", a.width, b.width);
    same("vocabulary", a.vocab, b.vocab);
    same("inner width", a.hidden, b.hidden);
    same("heads", a.heads, b.heads);
    same("KV heads", a.kv_heads, b.kv_heads);
    same("head size", a.head_dim, b.head_dim);
    same("rotated dimensions", a.learned_positions ? 0 : a.rope_dims, b.learned_positions ? 0 : b.rope_dims);
    same("gated", a.gated, b.gated);
    same("activation", name_of(a.activation), name_of(b.activation));
    same("norm", a.norm == NormKind::rms ? "rms" : "layer", b.norm == NormKind::rms ? "rms" : "layer");
    near("norm epsilon", static_cast<double>(a.norm_epsilon), static_cast<double>(b.norm_epsilon));
    near("attention scale", static_cast<double>(a.attention_scale), static_cast<double>(b.attention_scale));
    near("embedding scale", static_cast<double>(a.embedding_scale), static_cast<double>(b.embedding_scale));
    same("experts", a.experts ? a.experts->count : 0, b.experts ? b.experts->count : 0);
    fits_ = a.layers.size() == b.layers.size() && a.width == b.width && a.vocab == b.vocab &&
            a.hidden == b.hidden && a.heads == b.heads && a.kv_heads == b.kv_heads &&
            a.head_dim == b.head_dim && a.gated == b.gated && a.experts.has_value() == b.experts.has_value();
    for (int layer = 0; layer < static_cast<int>(std::min(a.layers.size(), b.layers.size())); ++layer)
      rotation(layer);
    add("manifest", "shape, numbers and rotation are the model's", "manifest_differs",
        "Export the shards from the model again; a manifest that was edited describes another model.");
  }

  void weights() {
    if (!fits_) {
      report_.checks.push_back({"weights", Outcome::skipped, "the shapes differ"});
      return;
    }
    const ModelConfig& c = shards_.config();
    for (int layer = 0; layer < static_cast<int>(c.layers.size()); ++layer) {
      for (const WeightPart& part : attention_parts(c)) compare(part, layer, ShardKind::attention, {});
      for (const WeightPart& part : feed_forward_parts(c))
        compare(part, layer, c.experts ? ShardKind::moe : ShardKind::mlp, {});
      if (c.experts) experts(layer);
    }
    compare({Role::embedding, "the embedding", c.vocab, c.width}, 0, ShardKind::embedding, {});
    compare({Role::final_norm, "the last norm", 0, c.width}, 0, ShardKind::head, {});
    const bool tied = model_.config().tied_head.value_or(!model_.has(Role::head));
    compare({Role::head, "the output matrix", c.vocab, c.width}, 0, ShardKind::head, {},
            tied ? Role::embedding : Role::head);
    add("weights",
        cat(compared_, " tensors are the model's, up to their rounding (largest relative error ", worst_,
            ")"),
        "weights_differ", "Export these shards from the model again, and look for what changed the files.");
  }

 private:
  void rotation(int layer) {
    const auto &a = shards_.config().layers[static_cast<std::size_t>(layer)],
               &b = model_.config().layers[static_cast<std::size_t>(layer)];
    if (a.window != b.window)
      differs_.push_back(cat("window of layer ", layer, " ", a.window ? cat(*a.window) : "none", " for ",
                             b.window ? cat(*b.window) : "none"));
    const auto x = shards_.frequencies(layer), y = model_.frequencies(layer);
    bool same = x.size() == y.size() && std::abs(shards_.magnitude(layer) - model_.magnitude(layer)) < 1e-6;
    for (std::size_t i = 0; i < x.size() && same; ++i) same = std::abs(x[i] - y[i]) <= 1e-6 * std::abs(y[i]);
    if (!same) differs_.push_back(cat("rotation of layer ", layer));
    if (!same || a.window != b.window) note_layer(layer);
  }

  void experts(int layer) {
    const ModelConfig& c = shards_.config();
    for (int expert = 0; expert < c.experts->count; ++expert) {
      compare({Role::expert_gate_up, "an expert's gate", c.hidden, c.width}, layer, ShardKind::moe,
              {expert, 0, 2 * c.hidden});
      compare({Role::expert_gate_up, "an expert's up", c.hidden, c.width}, layer, ShardKind::moe,
              {expert, c.hidden, 2 * c.hidden});
      compare({Role::expert_down, "an expert's down", c.width, c.hidden}, layer, ShardKind::moe,
              {expert, 0, c.width});
    }
  }

  // Shards lie with pairs of a rotation half a head apart; a file may have them side by side.
  std::int64_t model_row(Role role, std::int64_t row) const {
    const bool turned =
        role == Role::query || role == Role::key || role == Role::query_bias || role == Role::key_bias;
    const ModelConfig& c = model_.config();
    if (!turned || !c.rope_interleaved || shards_.config().rope_interleaved) return row;
    const std::int64_t head = row / c.head_dim, at = row % c.head_dim, pairs = c.rope_dims / 2;
    if (at >= c.rope_dims) return row;
    return head * c.head_dim + (at < pairs ? 2 * at : 2 * (at - pairs) + 1);
  }

  // By how much the shard's weights are off, relative; nullopt: neither has them.
  std::optional<double> off(const WeightPart& part, int layer, const ExpertRows& expert, Role role) const {
    if (part.rows == 0) {
      auto a = shards_.vector(part.role, layer, part.columns), b = model_.vector(role, layer, part.columns);
      if (a.empty() && b.empty()) return std::nullopt;
      if (a.empty()) a.resize(b.size());
      if (b.empty()) b.resize(a.size());
      std::vector<float> right(b.size());
      for (std::size_t i = 0; i < b.size(); ++i)
        right[i] = b[static_cast<std::size_t>(model_row(part.role, static_cast<std::int64_t>(i)))];
      return likeness(a, right).relative();
    }
    const PlainMatrix a = shards_.matrix(part.role, layer, part.rows, part.columns, expert),
                      b = model_.matrix(role, layer, part.rows, part.columns, expert);
    std::vector<float> x(static_cast<std::size_t>(part.columns)), y(x.size());
    double distance = 0.0, length = 0.0;
    for (std::int64_t r = 0; r < part.rows; ++r) {
      a.row(r, x.data());
      b.row(model_row(part.role, r), y.data());
      const Likeness row = likeness(x, y);
      distance += row.distance * row.distance;
      length += row.length * row.length;
    }
    return std::sqrt(distance / std::max(length, 1e-30));
  }

  double allowed(const WeightPart& part, int layer, ShardKind kind) const {
    if (part.rows == 0) return kF16;
    for (const ShardEntry& shard : manifest_.shards) {
      if (shard.info.kind != kind ||
          (kind != ShardKind::embedding && kind != ShardKind::head && shard.info.layer != layer))
        continue;
      for (const TensorEntry& tensor : shard.tensors)
        if (tensor.dtype == "I8")
          return manifest_.weights.find("tensor") != std::string::npos ? kInt8OneScale : kInt8;
    }
    return kF16;
  }

  void compare(const WeightPart& part, int layer, ShardKind kind, const ExpertRows& expert,
               std::optional<Role> role = std::nullopt) {
    const auto relative = off(part, layer, expert, role.value_or(part.role));
    if (!relative) return;
    ++compared_;
    if (*relative <= allowed(part, layer, kind)) {
      worst_ = std::max(worst_, *relative);
      return;
    }
    const bool layered = kind != ShardKind::embedding && kind != ShardKind::head;
    differs_.push_back(cat(part.name, expert.of > 0 ? cat(" (expert ", expert.expert, ")") : "",
                           layered ? cat(" of layer ", layer) : "", " by ",
                           std::round(*relative * 1e3) / 10.0, "%"));
    if (layered) note_layer(layer);
  }

  void note_layer(int layer) {
    if (!first_layer_) first_layer_ = layer;
  }

  void add(const char* check, const std::string& fine, const char* cause, const char* advice) {
    if (differs_.empty()) {
      report_.checks.push_back({check, Outcome::passed, fine});
      return;
    }
    std::string what;
    for (std::size_t i = 0; i < std::min<std::size_t>(4, differs_.size()); ++i)
      what += cat(i > 0 ? ", " : "", differs_[i]);
    if (differs_.size() > 4) what += cat(" and ", differs_.size() - 4, " more");
    report_.checks.push_back({check, Outcome::failed, what});
    Finding found;
    found.cause = cause;
    found.check = check;
    found.layer = first_layer_;
    found.what = cat("The shards differ from the model that they are compared with: ", what);
    found.advice = advice;
    report_.findings.insert(report_.findings.begin(), std::move(found));
    report_.passed = false;
    differs_.clear();
    first_layer_.reset();
  }

  ValidationReport& report_;
  const ShardManifest manifest_;
  const PlainWeights &shards_, &model_;
  std::vector<std::string> differs_;
  std::optional<int> first_layer_;
  std::int64_t compared_ = 0;
  double worst_ = 0.0;
  bool fits_ = true;
};

}  // namespace

void compare_weights(ValidationReport& report, const std::string& folder, const PlainWeights& shards,
                     const PlainWeights& model) {
  Comparison comparison(report, folder, shards, model);
  comparison.manifest();
  comparison.weights();
}

void compare_vocabulary(ValidationReport& report, const std::string& folder) {
  const ShardManifest manifest = read_manifest(folder);
  const Tokenizer tokenizer = open_shard_tokenizer(folder, manifest);
  const auto text = [](std::optional<TokenId> id) { return id ? cat(*id) : std::string("none"); };
  const auto list = [](const std::vector<TokenId>& ids) {
    std::string out;
    for (const TokenId id : ids) out += cat(out.empty() ? "" : ", ", id);
    return out.empty() ? std::string("none") : out;
  };
  std::vector<TokenId> ends;
  for (std::size_t id = 0; id < tokenizer.size(); ++id)
    if (tokenizer.ends_text(static_cast<TokenId>(id))) ends.push_back(static_cast<TokenId>(id));
  std::vector<TokenId> said = manifest.eos;
  std::sort(said.begin(), said.end());
  std::string what;
  if (manifest.bos != tokenizer.bos())
    what = cat("the manifest's bos is ", text(manifest.bos), ", the tokenizer's ", text(tokenizer.bos()));
  if (said != ends)
    what += cat(what.empty() ? "" : "; ", "the manifest's eos are ", list(said), ", the tokenizer's ",
                list(ends));
  report.checks.push_back({"vocabulary", what.empty() ? Outcome::passed : Outcome::failed,
                           what.empty() ? "beginning and end are those of the tokenizer" : what});
  if (what.empty()) return;
  Finding found;
  found.cause = "manifest_differs";
  found.check = "vocabulary";
  found.what = cat("The manifest and the tokenizer beside it disagree: ", what);
  found.advice = "Export the shards again, or put the tokenizer's ids into the manifest.";
  report.findings.push_back(std::move(found));
  report.passed = false;
}

}  // namespace kvtide
