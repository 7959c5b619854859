// Operations on two or three tensors that are broadcast against each other.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/text.h"
#include "coreml/run/broadcast.h"
#include "coreml/run/convert.h"
#include "coreml/run/operations.h"

namespace kvtide::coreml {
namespace binary {
namespace {

enum : std::size_t { kX, kY };

// A run of one tensor: elements as T, or one element repeated.
template <class T>
const T* run_of(const Call& call, const Tensor& tensor, std::int64_t at, std::int64_t step,
                std::int64_t count, T* room) {
  if (step == 1) {
    if constexpr (std::is_same_v<T, float>)
      if (tensor.dtype == DataType::fp32) return tensor.as<const float>() + at;
    load(call.run.kernels, tensor, at, count, room);
  } else {
    load(call.run.kernels, tensor, at, 1, room);
    for (std::int64_t i = 1; i < count; ++i) room[i] = room[0];
  }
  return room;
}

// y = f(a, b) in T, which is what both are computed in.
template <class T, class F>
void two(Call& call, F f) {
  const Tensor a = call.in(kX), b = call.in(kY);
  const Shape* const shapes[] = {&a.shape, &b.shape};
  const auto shape = broadcast_shape(shapes);
  if (!shape)
    call.refuse(cat("shapes ", text_of(a.shape), " and ", text_of(b.shape), " do not fit together"));
  const BroadcastWalk walk(*shape, shapes);
  const Tensor& out = call.make(*shape);
  walk.for_runs<2>(call.run, [&](const BroadcastRun<2>& at) {
    T room_a[kBroadcastRun], room_b[kBroadcastRun], y[kBroadcastRun];
    const T* x = run_of(call, a, at.at[0], at.step[0], at.count, room_a);
    const T* z = run_of(call, b, at.at[1], at.step[1], at.count, room_b);
    for (std::int64_t i = 0; i < at.count; ++i) y[i] = static_cast<T>(f(x[i], z[i]));
    store(call.run.kernels, y, at.count, out, at.first);
  });
}

bool in_floats(const Call& call) { return is_float(call.in(kX).dtype) || is_float(call.in(kY).dtype); }

// The operation of floats, and of whole numbers.
template <class F>
void arithmetic(Call& call) {
  if (in_floats(call))
    two<float>(call, [](float a, float b) { return F::of(a, b); });
  else
    two<std::int32_t>(call, [](std::int32_t a, std::int32_t b) { return F::of(a, b); });
}

// Whole numbers wrap around, as they do in 32 bits everywhere else.
inline std::int32_t wrapped(std::int64_t value) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(value));
}

struct Add {
  static float of(float a, float b) { return a + b; }
  static std::int32_t of(std::int32_t a, std::int32_t b) { return wrapped(std::int64_t{a} + b); }
};
struct Sub {
  static float of(float a, float b) { return a - b; }
  static std::int32_t of(std::int32_t a, std::int32_t b) { return wrapped(std::int64_t{a} - b); }
};
struct Mul {
  static float of(float a, float b) { return a * b; }
  static std::int32_t of(std::int32_t a, std::int32_t b) { return wrapped(std::int64_t{a} * b); }
};
struct RealDiv {
  static float of(float a, float b) { return a / b; }
  static std::int32_t of(std::int32_t a, std::int32_t b) { return b == 0 ? 0 : wrapped(std::int64_t{a} / b); }
};
struct FloorDiv {
  static float of(float a, float b) { return std::floor(a / b); }
  static std::int32_t of(std::int32_t a, std::int32_t b) {
    if (b == 0) return 0;
    const std::int64_t quotient = std::int64_t{a} / b;
    return wrapped(quotient - (quotient * b != a && (a < 0) != (b < 0) ? 1 : 0));
  }
};
// The sign is that of b.
struct Mod {
  static float of(float a, float b) {
    const float rest = std::fmod(a, b);
    return rest != 0.0f && (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
  }
  static std::int32_t of(std::int32_t a, std::int32_t b) {
    return b == 0 ? 0 : wrapped(std::int64_t{a} - std::int64_t{FloorDiv::of(a, b)} * b);
  }
};
struct Pow {
  static float of(float a, float b) { return b == 2.0f ? a * a : std::pow(a, b); }
  static std::int32_t of(std::int32_t a, std::int32_t b) {
    return static_cast<std::int32_t>(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
};
// NaN of either stays NaN.
struct Maximum {
  static float of(float a, float b) { return a > b || std::isnan(a) ? a : b; }
  static std::int32_t of(std::int32_t a, std::int32_t b) { return std::max(a, b); }
};
struct Minimum {
  static float of(float a, float b) { return a < b || std::isnan(a) ? a : b; }
  static std::int32_t of(std::int32_t a, std::int32_t b) { return std::min(a, b); }
};

template <class F>
void comparison(Call& call) {
  if (in_floats(call))
    two<float>(call, [](float a, float b) { return F::of(a, b) ? 1.0f : 0.0f; });
  else
    two<std::int32_t>(call, [](std::int32_t a, std::int32_t b) { return F::of(a, b) ? 1 : 0; });
}

#define KVTIDE_COMPARISON(Name, expression) \
  struct Name {                             \
    template <class T>                      \
    static bool of(T a, T b) {              \
      return expression;                    \
    }                                       \
  }
KVTIDE_COMPARISON(Equal, a == b);
KVTIDE_COMPARISON(NotEqual, a != b);
KVTIDE_COMPARISON(Greater, a > b);
KVTIDE_COMPARISON(GreaterEqual, a >= b);
KVTIDE_COMPARISON(Less, a < b);
KVTIDE_COMPARISON(LessEqual, a <= b);
KVTIDE_COMPARISON(And, a != T{} && b != T{});
KVTIDE_COMPARISON(Or, a != T{} || b != T{});
KVTIDE_COMPARISON(Xor, (a != T{}) != (b != T{}));
#undef KVTIDE_COMPARISON

template <class T>
void select_of(Call& call) {
  const Tensor cond = call.in(0), a = call.in(1), b = call.in(2);
  const Shape* const shapes[] = {&cond.shape, &a.shape, &b.shape};
  const auto shape = broadcast_shape(shapes);
  if (!shape)
    call.refuse(cat("shapes ", text_of(cond.shape), ", ", text_of(a.shape), " and ", text_of(b.shape),
                    " do not fit together"));
  const BroadcastWalk walk(*shape, shapes);
  const Tensor& out = call.make(*shape);
  walk.for_runs<3>(call.run, [&](const BroadcastRun<3>& at) {
    std::int32_t which[kBroadcastRun];
    T room_a[kBroadcastRun], room_b[kBroadcastRun], y[kBroadcastRun];
    const std::int32_t* c = run_of(call, cond, at.at[0], at.step[0], at.count, which);
    const T* x = run_of(call, a, at.at[1], at.step[1], at.count, room_a);
    const T* z = run_of(call, b, at.at[2], at.step[2], at.count, room_b);
    for (std::int64_t i = 0; i < at.count; ++i) y[i] = c[i] != 0 ? x[i] : z[i];
    store(call.run.kernels, y, at.count, out, at.first);
  });
}

void select(Call& call) {
  if (is_float(call.in(1).dtype) || is_float(call.in(2).dtype))
    select_of<float>(call);
  else
    select_of<std::int32_t>(call);
}

}  // namespace
}  // namespace binary

OperationRows binary_operations() {
  using namespace binary;
  return {operation("add", {"x", "y"}, arithmetic<Add>),
          operation("sub", {"x", "y"}, arithmetic<Sub>),
          operation("mul", {"x", "y"}, arithmetic<Mul>),
          operation("real_div", {"x", "y"}, arithmetic<RealDiv>),
          operation("floor_div", {"x", "y"}, arithmetic<FloorDiv>),
          operation("mod", {"x", "y"}, arithmetic<Mod>),
          operation("pow", {"x", "y"}, arithmetic<Pow>),
          operation("maximum", {"x", "y"}, arithmetic<Maximum>),
          operation("minimum", {"x", "y"}, arithmetic<Minimum>),
          operation("equal", {"x", "y"}, comparison<Equal>),
          operation("not_equal", {"x", "y"}, comparison<NotEqual>),
          operation("greater", {"x", "y"}, comparison<Greater>),
          operation("greater_equal", {"x", "y"}, comparison<GreaterEqual>),
          operation("less", {"x", "y"}, comparison<Less>),
          operation("less_equal", {"x", "y"}, comparison<LessEqual>),
          operation("logical_and", {"x", "y"}, comparison<And>),
          operation("logical_or", {"x", "y"}, comparison<Or>),
          operation("logical_xor", {"x", "y"}, comparison<Xor>),
          operation("select", {"cond", "a", "b"}, select)};
}

}  // namespace kvtide::coreml
