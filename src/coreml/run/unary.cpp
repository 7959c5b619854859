// Operations on one tensor, element by element.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/text.h"
#include "coreml/program/data_type.h"
#include "coreml/run/convert.h"
#include "coreml/run/operations.h"

namespace kvtide::coreml {
namespace unary {
namespace {

constexpr std::int64_t kPiece = 1024;

// y = f over pieces: f(x, n) in place.
template <class T, class F>
void each_piece(Call& call, const F& f) {
  const Tensor x = call.in(0);
  const Tensor& out = call.make(x.shape);
  in_pieces(call.run, x.elements(), 16 * kPiece, [&](std::int64_t first, std::int64_t last) {
    T piece[kPiece];
    for (std::int64_t at = first; at < last; at += kPiece) {
      const std::int64_t n = std::min(kPiece, last - at);
      load(call.run.kernels, x, at, n, piece);
      f(piece, n);
      store(call.run.kernels, piece, n, out, at);
    }
  });
}

template <class F>
void each(Call& call, const F& f) {
  each_piece<float>(call, [&](float* x, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) x[i] = f(x[i]);
  });
}

// Of floats; whole numbers are what they are.
template <float (*kFunction)(float)>
void floats(Call& call) {
  each(call, [](float x) { return kFunction(x); });
}

float square_of(float x) { return x * x; }
float sign_of(float x) { return x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x; }
float relu_of(float x) { return x > 0.0f || x != x ? x : 0.0f; }
float sigmoid_of(float x) { return 1.0f / (1.0f + std::exp(-x)); }
float softplus_of(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }
float round_of(float x) { return std::nearbyint(x); }
float sqrt_of(float x) { return std::sqrt(x); }
float exp_of(float x) { return std::exp(x); }
float exp2_of(float x) { return std::exp2(x); }
float tanh_of(float x) { return std::tanh(x); }
float erf_of(float x) { return std::erf(x); }
float sin_of(float x) { return std::sin(x); }
float cos_of(float x) { return std::cos(x); }
float tan_of(float x) { return std::tan(x); }
float floor_of(float x) { return std::floor(x); }
float ceil_of(float x) { return std::ceil(x); }

void absolute(Call& call) {
  if (is_float(call.in(0).dtype)) return each(call, [](float x) { return std::fabs(x); });
  each_piece<std::int32_t>(call, [](std::int32_t* x, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] < 0 ? -x[i] : x[i];
  });
}

void logical_not(Call& call) {
  each_piece<std::int32_t>(call, [](std::int32_t* x, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) x[i] = x[i] == 0;
  });
}

void rsqrt(Call& call) {
  const float epsilon = call.real(1, 1e-12f);
  each(call, [&](float x) { return 1.0f / std::sqrt(x + epsilon); });
}
void log(Call& call) {
  const float epsilon = call.real(1, 1e-45f);
  each(call, [&](float x) { return std::log(x + epsilon); });
}
void inverse(Call& call) {
  const float epsilon = call.real(1, 1e-4f);
  each(call, [&](float x) { return 1.0f / (x + epsilon); });
}

void silu(Call& call) {
  float ones[kPiece];
  for (float& one : ones) one = 1.0f;
  each_piece<float>(call,
                    [&](float* x, std::int64_t n) { call.run.kernels.elementwise.silu_mul(x, ones, n); });
}

void gelu(Call& call) {
  const std::string_view mode = call.text(1, "EXACT");
  if (mode == "TANH_APPROXIMATION")
    return each_piece<float>(call,
                             [&](float* x, std::int64_t n) { call.run.kernels.elementwise.gelu(x, n); });
  if (mode == "SIGMOID_APPROXIMATION") return each(call, [](float x) { return x * sigmoid_of(1.702f * x); });
  if (mode != "EXACT")
    call.refuse(
        cat("mode ", quoted(mode), "; EXACT, TANH_APPROXIMATION and SIGMOID_APPROXIMATION are known"));
  each(call, [](float x) { return 0.5f * x * (1.0f + std::erf(x * 0.70710678118654752f)); });
}

void clip(Call& call) {
  const float low = call.real(1), high = call.real(2);
  each(call, [&](float x) { return x < low ? low : x > high ? high : x; });
}

void leaky_relu(Call& call) {
  const float alpha = call.real(1, 0.01f);
  each(call, [&](float x) { return x < 0.0f ? alpha * x : x; });
}

void identity(Call& call) { call.give(call.in(0)); }

}  // namespace
}  // namespace unary

OperationRows unary_operations() {
  using namespace unary;
  return {operation("square", {"x"}, floats<square_of>), operation("sign", {"x"}, floats<sign_of>),
          operation("relu", {"x"}, floats<relu_of>), operation("sigmoid", {"x"}, floats<sigmoid_of>),
          operation("softplus", {"x"}, floats<softplus_of>), operation("round", {"x"}, floats<round_of>),
          operation("sqrt", {"x"}, floats<sqrt_of>), operation("exp", {"x"}, floats<exp_of>),
          operation("exp2", {"x"}, floats<exp2_of>), operation("tanh", {"x"}, floats<tanh_of>),
          operation("erf", {"x"}, floats<erf_of>), operation("sin", {"x"}, floats<sin_of>),
          operation("cos", {"x"}, floats<cos_of>), operation("tan", {"x"}, floats<tan_of>),
          operation("floor", {"x"}, floats<floor_of>), operation("ceil", {"x"}, floats<ceil_of>),
          operation("abs", {"x"}, absolute), operation("logical_not", {"x"}, logical_not),
          operation("rsqrt", {"x", "epsilon?"}, rsqrt), operation("log", {"x", "epsilon?"}, log),
          operation("inverse", {"x", "epsilon?"}, inverse), operation("silu", {"x"}, silu),
          operation("gelu", {"x", "mode?"}, gelu), operation("clip", {"x", "alpha", "beta"}, clip),
          operation("leaky_relu", {"x", "alpha?"}, leaky_relu),
          // The declared type of the result says the same as `dtype`.
          operation("cast", {"x", "dtype"}, identity), operation("identity", {"x"}, identity)};
}

}  // namespace kvtide::coreml
