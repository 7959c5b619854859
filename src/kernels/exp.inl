// exp.inl: e^x on Lanes. Relative error below 2^-23 over the range; the same bits on every instruction set.
//
// x = n ln 2 + r with |r| <= ln(2)/2; e^r by its Taylor series to r^7/7!, whose remainder is below 6e-9;
// times 2^n. Results below 2^-126 are 0, arguments above 88 are taken as 88, NaN stays NaN.
namespace kvtide {
namespace {

inline Lanes exp(const Lanes& argument) {
  const Lanes x = select_less(set1(88.0f), argument, set1(88.0f), argument);
  const Lanes tiny = set1(-87.0f);
  const Lanes safe = select_less(x, tiny, tiny, x);
  const Lanes n = round(mul(safe, set1(1.44269504088896341f)));
  // ln 2 in two parts: the first has few enough bits for n * part to be exact.
  Lanes r = fma(n, set1(-0.693145751953125f), safe);
  r = fma(n, set1(-1.428606765330187e-06f), r);
  Lanes sum = set1(1.0f / 5040.0f);
  sum = fma(sum, r, set1(1.0f / 720.0f));
  sum = fma(sum, r, set1(1.0f / 120.0f));
  sum = fma(sum, r, set1(1.0f / 24.0f));
  sum = fma(sum, r, set1(1.0f / 6.0f));
  sum = fma(sum, r, set1(0.5f));
  sum = fma(sum, r, set1(1.0f));
  sum = fma(sum, r, set1(1.0f));
  return select_less(x, tiny, set1(0.0f), mul(sum, pow2(n)));
}

// e^(score - highest), a softmax weight that is rounded to sixteen bits or fewer: 2^n times a polynomial in f, where
// (score - highest) log2(e) = n + f and |f| <= 1/2. The polynomial's relative error is below 10^-7 (the least largest
// error, found numerically); rounding of the sum n + f adds 2^-24 of the larger of it and the highest score. Weights
// below 2^-60 are 0; NaN stays NaN.
inline Lanes exp_of_weight(const Lanes& score, const Lanes& minus_highest_log2) {
  const Lanes t = fma(score, set1(1.44269504088896341f), minus_highest_log2);
  const Lanes n = round(t), f = sub(t, n);
  Lanes sum = set1(0x1.5bba14p-10f);
  sum = fma(sum, f, set1(0x1.3cea88p-7f));
  sum = fma(sum, f, set1(0x1.c6b752p-5f));
  sum = fma(sum, f, set1(0x1.ebf9bcp-3f));
  sum = fma(sum, f, set1(0x1.62e42ap-1f));
  sum = fma(sum, f, set1(1.0f));
  return times_pow2_unless_less(t, set1(-60.0f), sum, n);
}
inline Lanes minus_log2(const Lanes& highest) { return mul(highest, set1(-1.44269504088896341f)); }

}  // namespace
}  // namespace kvtide
