#include "validate/measure.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace kvtide {

Likeness likeness(std::span<const float> a, std::span<const float> b) {
  double ab = 0.0, aa = 0.0, bb = 0.0, dd = 0.0;
  Likeness out;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    ab += x * y;
    aa += x * x;
    bb += y * y;
    dd += (x - y) * (x - y);
    out.max_abs = std::max(out.max_abs, std::abs(x - y));
  }
  out.length = std::sqrt(bb);
  out.distance = std::sqrt(dd);
  if (!std::isfinite(aa) || !std::isfinite(bb)) return {-1.0, INFINITY, INFINITY, out.length, 0.0};
  out.ratio = bb > 0.0 ? std::sqrt(aa / bb) : aa > 0.0 ? 1e30 : 1.0;
  if (aa > 0.0 && bb > 0.0)
    out.cosine = std::clamp(ab / std::sqrt(aa * bb), -1.0, 1.0);
  else
    out.cosine = aa == bb ? 1.0 : 0.0;
  return out;
}

Likeness likeness_of_change(std::span<const float> in, std::span<const float> out,
                            std::span<const float> wanted_in, std::span<const float> wanted_out,
                            double rounding) {
  std::vector<float> change(out.size()), wanted(out.size());
  double stream = 0.0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    change[i] = out[i] - in[i];
    wanted[i] = wanted_out[i] - wanted_in[i];
    stream += static_cast<double>(wanted_out[i]) * static_cast<double>(wanted_out[i]);
  }
  Likeness found = likeness(change, wanted);
  if (found.length > 0.0 && std::isfinite(found.max_abs)) {
    const double noise = rounding * std::sqrt(stream) / found.length;
    found.cosine = std::min(1.0, found.cosine + noise * noise);
    if (std::abs(found.ratio - 1.0) <= noise) found.ratio = 1.0;
  }
  return found;
}

double relative_of(double gate) { return std::sqrt(2.0 * (1.0 - gate)); }

bool alike(const Likeness& found, double gate) {
  return found.cosine >= gate && std::abs(found.ratio - 1.0) <= 2.0 * relative_of(gate);
}

bool same_numbers(std::span<const float> a, std::span<const float> b) {
  const Likeness found = likeness(a, b);
  return found.cosine > 0.0 ? found.relative() < 2e-5 : found.max_abs == 0.0;
}

}  // namespace kvtide
