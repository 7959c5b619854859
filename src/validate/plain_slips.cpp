// plain_slips.cpp: the plain decoder computing a layer in the ways in which ports get it wrong (Slip). Without
// a twist every function here gives what is right.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

#include "base/half.h"
#include "validate/plain_decoder.h"
#include "validate/row_match.h"

namespace kvtide {
namespace {

float as_f16(float x) { return f16_to_f32(f32_to_f16(x)); }
float as_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return bf16_to_f32(static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16));
}

Twist::Part part_of(Role norm) {
  if (norm == Role::attention_norm) return Twist::Part::attention;
  return norm == Role::feed_forward_norm ? Twist::Part::feed_forward : Twist::Part::head;
}

}  // namespace

// A part that is asked for is slipped in when the twist is about it, or about all.
bool PlainDecoder::slips(Slip slip, Twist::Part part) const {
  return twist_.slip == slip &&
         (part == Twist::Part::all || twist_.part == Twist::Part::all || twist_.part == part);
}

bool PlainDecoder::drops(Role bias) const {
  switch (bias) {
    case Role::query_bias:
      return slips(Slip::query_bias_dropped) || slips(Slip::projection_biases_dropped);
    case Role::key_bias:
      return slips(Slip::key_bias_dropped) || slips(Slip::projection_biases_dropped);
    case Role::value_bias:
      return slips(Slip::value_bias_dropped) || slips(Slip::projection_biases_dropped);
    case Role::attention_output_bias:
      return slips(Slip::output_bias_dropped, Twist::Part::attention);
    case Role::up_bias:
    case Role::down_bias:
      return slips(Slip::output_bias_dropped, Twist::Part::feed_forward);
    default:
      return false;
  }
}

PlainDecoder::NormPlan PlainDecoder::norm_plan(Role weight, Role bias, int layer) const {
  const bool behind = weight == Role::attention_post_norm || weight == Role::feed_forward_post_norm;
  const Twist::Part part = weight == Role::attention_post_norm      ? Twist::Part::attention
                           : weight == Role::feed_forward_post_norm ? Twist::Part::feed_forward
                                                                    : part_of(weight);
  NormPlan plan;
  plan.weight = vector(weight, layer, config_.width);
  const bool layer_norm = config_.norm == NormKind::layer;
  if (layer_norm) plan.bias = vector(bias, layer, config_.width);
  plan.takes_mean = layer_norm;
  plan.epsilon = slips(Slip::norm_epsilon, part) ? twist_.number : static_cast<double>(config_.norm_epsilon);
  plan.skipped = behind ? slips(Slip::post_norm_skipped, part) : slips(Slip::norm_skipped, part);
  if (behind && twist_.part != Twist::Part::all) return plan;
  if (slips(Slip::norm_weight_ignored, part)) plan.weight.assign(plan.weight.size(), 1.0f);
  if (slips(Slip::norm_weight_plus, part))
    for (float& w : plan.weight) w += static_cast<float>(twist_.number);
  if (slips(Slip::norm_mean_kept, part)) plan.takes_mean = false;
  if (slips(Slip::norm_mean_taken, part)) plan.takes_mean = true;
  if (slips(Slip::norm_bias_dropped, part)) plan.bias.clear();
  return plan;
}

double PlainDecoder::head_epsilon() const {
  return slips(Slip::norm_epsilon, Twist::Part::attention) ? twist_.number
                                                           : static_cast<double>(config_.norm_epsilon);
}

double PlainDecoder::Rotation::angle(Pos position, std::size_t pair) const {
  if (rounded == nullptr) return static_cast<double>(position) * frequencies[pair];
  const float frequency = rounded(static_cast<float>(frequencies[pair]));
  return static_cast<double>(rounded(rounded(static_cast<float>(position)) * frequency));
}

PlainDecoder::Rotation PlainDecoder::rotation(int layer) const {
  Rotation out;
  out.frequencies = frequencies(layer);
  out.magnitude = weights_->magnitude(layer);
  std::vector<double>& f = out.frequencies;
  if (f.empty()) return out;
  if (slips(Slip::rope_base)) {
    for (std::size_t i = 0; i < f.size(); ++i)
      f[i] = std::pow(twist_.number, -static_cast<double>(i) / static_cast<double>(f.size()));
  } else if (slips(Slip::rope_stretched)) {
    for (double& x : f) x *= twist_.number;
  } else if (slips(Slip::rope_unscaled)) {
    const double base = weights_->rope_base(layer);
    for (std::size_t i = 0; i < f.size(); ++i)
      f[i] = std::pow(base, -static_cast<double>(i) / static_cast<double>(f.size()));
    out.magnitude = 1.0;
  } else if (slips(Slip::rope_of_other_layers)) {
    for (int other = 0; other < static_cast<int>(config_.layers.size()); ++other)
      if (const auto found = frequencies(other); found != f) {
        f = found;
        break;
      }
  } else if (slips(Slip::rope_backwards)) {
    for (double& x : f) x = -x;
  } else if (slips(Slip::rope_skipped)) {
    f.assign(f.size(), 0.0);
  } else if (slips(Slip::rope_width)) {
    const auto pairs = static_cast<std::int64_t>(twist_.number);
    if (pairs > 0 && 2 * pairs <= config_.head_dim) f = widened(f, pairs);
  }
  if (slips(Slip::rope_unmagnified)) out.magnitude = 1.0;
  out.paired_otherwise = slips(Slip::rope_paired_otherwise);
  if (slips(Slip::angles_f16)) out.rounded = as_f16;
  if (slips(Slip::angles_bf16)) out.rounded = as_bf16;
  return out;
}

void PlainDecoder::mix_heads(Rows& q) const {
  const auto heads = static_cast<std::size_t>(config_.heads),
             dim = static_cast<std::size_t>(config_.head_dim);
  if (!slips(Slip::query_heads_mixed)) return;
  const Rows right = q;
  for (std::size_t start = 0; start < q.size(); start += heads * dim)
    for (std::size_t h = 0; h < heads; ++h)
      for (std::size_t i = 0; i < dim; ++i) q[start + h * dim + i] = right[start + i * heads + h];
}

void PlainDecoder::roll_heads(Rows& rows) const {
  const auto heads = static_cast<std::int64_t>(config_.heads), dim = std::int64_t{config_.head_dim};
  const Rows right = rows;
  const auto by = static_cast<std::int64_t>(twist_.number);
  for (std::int64_t start = 0; start < static_cast<std::int64_t>(rows.size()); start += heads * dim)
    for (std::int64_t h = 0; h < heads; ++h)
      std::copy_n(right.begin() + start + h * dim, dim,
                  rows.begin() + start + ((h + by) % heads + heads) % heads * dim);
}

void PlainDecoder::round_rows(Rows& rows) const {
  const auto dim = static_cast<std::size_t>(config_.head_dim);
  for (std::size_t start = 0; start < rows.size(); start += dim) {
    float top = 0.0f;
    for (std::size_t i = 0; i < dim; ++i) top = std::max(top, std::abs(rows[start + i]));
    if (top == 0.0f) continue;
    for (std::size_t i = 0; i < dim; ++i)
      rows[start + i] = std::nearbyint(rows[start + i] * 127.0f / top) * top / 127.0f;
  }
}

std::optional<std::int64_t> PlainDecoder::twisted_window(int layer) const {
  const auto window = config_.layers[static_cast<std::size_t>(layer)].window;
  if (!window || slips(Slip::window_ignored)) return std::nullopt;
  if (slips(Slip::window_longer))
    return std::max<std::int64_t>(1, *window + static_cast<std::int64_t>(twist_.number));
  if (slips(Slip::window_times))
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(*window) * twist_.number));
  return window;
}

double PlainDecoder::twisted_score(double score) const {
  const auto scale = static_cast<double>(config_.attention_scale);
  if (slips(Slip::score_unscaled)) return score / scale;
  if (slips(Slip::score_scaled_twice)) return score * scale;
  if (slips(Slip::score_scaled_by_head))
    return score / scale / std::sqrt(static_cast<double>(config_.head_dim));
  if (slips(Slip::score_cap)) return twist_.number * std::tanh(score / twist_.number);
  return score;
}

double PlainDecoder::rounded_weight(double weight) const {
  if (slips(Slip::softmax_f16)) return static_cast<double>(as_f16(static_cast<float>(weight)));
  if (slips(Slip::softmax_bf16)) return static_cast<double>(as_bf16(static_cast<float>(weight)));
  return weight;
}

ActivationKind PlainDecoder::activation_kind() const {
  if (slips(Slip::activation)) return static_cast<ActivationKind>(twist_.number);
  switch (config_.activation) {
    case Activation::gelu:
      return ActivationKind::gelu_tanh;
    case Activation::squared_relu:
      return ActivationKind::squared_relu;
    case Activation::silu:
      break;
  }
  return ActivationKind::silu;
}

double PlainDecoder::activated(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::silu:
      return x / (1.0 + std::exp(-x));
    case ActivationKind::gelu_tanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case ActivationKind::gelu_erf:
      return 0.5 * x * (1.0 + std::erf(x / std::numbers::sqrt2));
    case ActivationKind::quick_gelu:
      return x / (1.0 + std::exp(-1.702 * x));
    case ActivationKind::relu:
      return std::max(x, 0.0);
    case ActivationKind::squared_relu:
      return x > 0.0 ? x * x : 0.0;
    case ActivationKind::none:
      break;
  }
  return x;
}

// The numbers of [rows][columns] read as [columns][rows].
PlainMatrix PlainDecoder::transposed(const PlainMatrix& head) {
  std::vector<float> all(static_cast<std::size_t>(head.rows * head.columns));
  for (std::int64_t r = 0; r < head.rows; ++r) head.row(r, all.data() + r * head.columns);
  return {head.rows, head.columns, [all = std::move(all), head](std::int64_t index, float* out) {
            for (std::int64_t c = 0; c < head.columns; ++c)
              out[c] = all[static_cast<std::size_t>(c * head.rows + index)];
          }};
}

void PlainDecoder::twist_logits(Rows& logits) const {
  const auto number = static_cast<float>(twist_.number);
  if (slips(Slip::logit_scale))
    for (float& x : logits) x *= number;
  if (slips(Slip::logit_cap))
    for (float& x : logits) x = number * std::tanh(x / number);
}

}  // namespace kvtide
