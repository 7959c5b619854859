#include "model/config/longrope.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "kvtide/error.h"
#include "model/config/gguf_config.h"

namespace kvtide {
namespace {

constexpr double kSmallest = 1e-6, kLargest = 1e6;  // of a divisor

// What cosines and sines are multiplied by when nothing says it; as an f32, which is what GGUF files hold.
double grown(double factor, double original) {
  if (factor <= 1.0 || original <= 1.0) return 1.0;
  return static_cast<double>(static_cast<float>(std::sqrt(1.0 + std::log(factor) / std::log(original))));
}

std::vector<float> divisors_of(const JsonFields& rope, const char* key, int rope_dims) {
  std::vector<float> out;
  for (const double divisor : rope.numbers<std::vector<double>>(key)) {
    if (!(divisor >= kSmallest && divisor <= kLargest))
      rope.wrong(key, "a list of numbers between 1e-6 and 1e6");
    out.push_back(static_cast<float>(divisor));
  }
  if (static_cast<int>(out.size()) != rope_dims / 2)
    rope.refuse(ErrorCode::bad_format, cat("'", key, "' has ", out.size(), " numbers; it needs ",
                                           rope_dims / 2, ", one for each rotated pair"));
  return out;
}

// A model that was trained for no more than the original context has no long texts.
void take(std::vector<float> short_ones, std::vector<float> long_ones, const ModelConfig& config,
          RopeConfig& out) {
  const bool longer = static_cast<double>(config.context_length) > out.original_context;
  out.divisors = longer ? std::move(long_ones) : std::move(short_ones);
  if (longer) out.short_divisors = std::move(short_ones);
}

// One divisor per rotated pair.
std::vector<float> read_divisors(const GgufFile& file, const GgufTensor& tensor, int rope_dims) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::bad_format, cat(file.path(), ": tensor ", quoted(tensor.name), " ", why));
  };
  if (tensor.dtype != DType::f32 || tensor.shape.size() != 1 || tensor.shape[0] != rope_dims / 2)
    refuse(cat("must be f32 [", rope_dims / 2, "], one value per rotated pair"));
  std::vector<float> divisors(static_cast<std::size_t>(rope_dims / 2));
  std::memcpy(divisors.data(), tensor.data.data(), divisors.size() * sizeof(float));
  for (const float divisor : divisors)
    if (!(static_cast<double>(divisor) >= kSmallest && static_cast<double>(divisor) <= kLargest))
      refuse(cat("holds ", divisor, "; its values must lie between 1e-6 and 1e6"));
  return divisors;
}

}  // namespace

void read_longrope(const JsonFields& rope, const ModelConfig& config, double original, RopeConfig& out) {
  std::optional<double> fallback;
  if (original > 0.0) fallback = original;
  out.original_context = rope.real("original_max_position_embeddings", 1.0, 1e9, fallback);
  const double factor =
      rope.real("factor", 1e-3, 1e6, static_cast<double>(config.context_length) / out.original_context);
  out.magnitude = rope.real("attention_factor", 1e-3, 1e3, grown(factor, out.original_context));
  std::vector<float> near = divisors_of(rope, "short_factor", config.rope_dims);
  take(std::move(near), divisors_of(rope, "long_factor", config.rope_dims), config, out);
}

void read_longrope(const GgufFile& file, ModelConfig& config) {
  const GgufTensor* near = file.find_tensor("rope_factors_short.weight");
  const GgufTensor* far = file.find_tensor("rope_factors_long.weight");
  if (near == nullptr && far == nullptr) return;
  if (near == nullptr || far == nullptr)
    throw Error(ErrorCode::bad_format, cat(file.path(),
                                           ": of the tensors 'rope_factors_short.weight' and "
                                           "'rope_factors_long.weight' there is only one"));
  RopeConfig& rope = config.ropes.at(0);
  rope.original_context = read_real(file, "rope.scaling.original_context_length", 1.0, 1e9);
  rope.magnitude = read_real(
      file, "rope.scaling.attn_factor", 1e-3, 1e3,
      grown(static_cast<double>(config.context_length) / rope.original_context, rope.original_context));
  take(read_divisors(file, *near, config.rope_dims), read_divisors(file, *far, config.rope_dims), config,
       rope);
}

void choose_rotation(ModelConfig& config, std::int64_t context) {
  if (context <= 0) return;
  for (RopeConfig& rope : config.ropes) {
    if (rope.short_divisors.empty() || static_cast<double>(context) > rope.original_context) continue;
    rope.divisors = std::move(rope.short_divisors);
    rope.short_divisors.clear();
    config.context_length = static_cast<std::int64_t>(rope.original_context);
    config.short_rotation = true;
  }
}

}  // namespace kvtide
