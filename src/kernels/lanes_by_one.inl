// lanes_by_one.inl: what lanes do by their other operations, or one vector after another, where they know no better.
// Included by a lanes header at its end; those of x86 do all of it in their own way (half_words.*.h).
#include <cstddef>
#include <cstdint>

namespace kvtide {
namespace {

// a < b ? 0 : x * 2^n, for integral n in [-126, 127]; anything for other n where a < b.
inline Lanes times_pow2_unless_less(const Lanes& a, const Lanes& b, const Lanes& x, const Lanes& n) {
  return select_less(a, b, set1(0.0f), mul(x, pow2(n)));
}

// The sixteen results of a reduction of sixteen vectors.
template <class Reduce>
inline Lanes each_of16(const Lanes a[kLanes], Reduce reduce) {
  alignas(64) float r[kLanes];
  for (int i = 0; i < kLanes; ++i) r[i] = reduce(a[i]);
  return load(r);
}
inline Lanes reduce_add16(const Lanes a[kLanes]) {
  return each_of16(a, [](const Lanes& one) { return reduce_add(one); });
}
inline Lanes reduce_max16(const Lanes a[kLanes]) {
  return each_of16(a, [](const Lanes& one) { return reduce_max(one); });
}
inline Lanes reduce_max_bits16(const Lanes a[kLanes]) {
  return each_of16(a, [](const Lanes& one) { return reduce_max_bits(one); });
}

// Thirty-two words of sixteen bits of each of sixteen rows that are `stride` bytes apart.
struct HalfWords {
  std::uint16_t words[32][kLanes];
};
inline void transpose(const std::byte* rows, std::int64_t stride, HalfWords& out) {
  for (int row = 0; row < kLanes; ++row)
    for (int word = 0; word < 32; ++word)
      __builtin_memcpy(&out.words[word][row], rows + row * stride + word * 2, 2);
}
// A word of each row, as an f16 number.
inline Lanes load(const HalfWords& a, int word) { return load(a.words[word]); }

}  // namespace
}  // namespace kvtide
