// unroll.h: KVTIDE_UNROLL(n) before a loop over registers writes it out n times, so that each has a register of its own.
//
// Not under the address sanitizer: clang then takes minutes for a file of kernels, since every load is a few branches.
#pragma once

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
