#include "state/rows/row_format.h"

#include "base/pages.h"
#include "kernels/attend_kernel.h"
#include "state/spec/bytes.h"

namespace kvtide {
namespace {

// Larger positions fill pages anyway, and reading one head of them would touch a page for every row or two.
constexpr std::int64_t kMostTogether = 2304;
// Wide windows waste a small part of their pages, and are streamed faster head by head.
constexpr std::int64_t kFewRows = 1280;
// Rows so far apart, or a multiple of it, crowd a few sets of the first cache.
constexpr std::int64_t kCrowded = 512;
constexpr std::int64_t kWord = 4;  // of f32

std::int64_t whole_words(std::int64_t bytes) { return (bytes + kWord - 1) / kWord * kWord; }

// The most pages of a region.
std::int64_t region_bytes(std::int64_t rows, std::int64_t stride) {
  // Where they begin; and where forks go on inside a page, it is there twice.
  constexpr std::int64_t kBegun = 3;
  return rows == 0 ? 0 : page_ceil(rows * stride) + kBegun * kPage;
}

// The sum of bytes(stride) over all regions of a layer.
template <class Bytes>
std::int64_t over_regions(const RowFormat& format, const Bytes& bytes) {
  if (format.heads_together) return bytes(format.position_stride());
  return format.kv_heads *
         (bytes(format.key_bytes) + (format.values_in_keys ? 0 : bytes(format.value_bytes)));
}

}  // namespace

std::int64_t RowFormat::values_at() const { return whole_words(kv_heads * key_bytes); }

std::int64_t RowFormat::position_stride() const { return whole_words(values_at() + kv_heads * value_bytes); }

RowFormat row_format(const KvSpec& spec, const LayerSpec& layer) {
  return row_format(spec, layer, {spec.key_type, spec.value_type, 0});
}

RowFormat row_format(const KvSpec& spec, const LayerSpec& layer, const RowStage& types) {
  RowFormat format{layer.kv_heads, dtype_bytes(types.key_type, layer.head_dim),
                   dtype_bytes(types.value_type, layer.head_dim), keeps_rows_once(spec, layer)};
  const std::int64_t stride = format.position_stride();
  format.heads_together = spec.procedural && spec.procedural->window + spec.procedural->block <= kFewRows &&
                          stride <= kMostTogether && stride % kCrowded != 0;
  return format;
}

std::int64_t page_bytes(const RowFormat& format, std::int64_t first, std::int64_t last) {
  if (first >= last) return 0;
  return over_regions(
      format, [&](std::int64_t stride) { return page_ceil(last * stride) - page_floor(first * stride); });
}

std::int64_t most_page_bytes(const RowFormat& format, std::int64_t rows) {
  return over_regions(format, [&](std::int64_t stride) { return region_bytes(rows, stride); });
}

std::int64_t most_page_bytes_from_start(const RowFormat& format, std::int64_t rows) {
  return over_regions(format, [&](std::int64_t stride) {
    return kTileRows * stride % kPage == 0 ? page_ceil(rows * stride) : region_bytes(rows, stride);
  });
}

}  // namespace kvtide
