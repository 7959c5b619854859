// unroll.h: loops that are written out, so that what they number are registers or constants.
#pragma once

#include <type_traits>
#include <utility>

// KVTIDE_UNROLL(n) before a loop writes it out n times. Not under the address sanitizer: clang then takes minutes for a
// file of kernels, since every load is a few branches.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KVTIDE_UNROLL(n)
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define KVTIDE_UNROLL(n)
#endif
#ifndef KVTIDE_UNROLL
#define KVTIDE_PRAGMA(text) _Pragma(#text)
#define KVTIDE_UNROLL(n) KVTIDE_PRAGMA(GCC unroll n)
#endif

namespace kvtide {
namespace {

// body(integral_constant) for 0 .. N - 1: instructions name lanes by constants.
template <int N, class Body>
inline void each(Body body) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (body(std::integral_constant<int, kIndex>()), ...);
  }
  (std::make_integer_sequence<int, N>());
}

}  // namespace
}  // namespace kvtide
