#include "state/arrays/layout_rows.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "kernels/codec.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

// Rotates a key as if it had been written `tokens` positions later.
void rotate(std::vector<float>& key, const std::vector<double>& frequencies, std::int64_t tokens) {
  const std::size_t pairs = frequencies.size();
  for (std::size_t i = 0; i < pairs; ++i) {
    const double angle = static_cast<double>(tokens) * frequencies[i];
    const double cosine = std::cos(angle), sine = std::sin(angle);
    const double a = static_cast<double>(key[i]), b = static_cast<double>(key[i + pairs]);
    key[i] = static_cast<float>(a * cosine - b * sine);
    key[i + pairs] = static_cast<float>(b * cosine + a * sine);
  }
}

// Rows [first, last) as they were written and seen `shift` tokens nearer.
void read_segment(const StateRows& rows, const LayoutArray& array, const LayoutBlock& block, int head,
                  const Segment& segment, std::byte* out) {
  const LayerSpec& layer = rows.image().spec.layers[static_cast<std::size_t>(block.layer)];
  const bool turned = block.part == KvPart::keys && segment.shift != 0;
  const bool as_stored = rows.dtype(block.part) == array.dtype && !turned && !is_spread(rows.image().spec);
  std::vector<float> floats(static_cast<std::size_t>(layer.head_dim));
  for (Pos p = segment.first; p < segment.last; ++p, out += row_bytes(rows.image(), array)) {
    if (as_stored) {
      const std::span<const std::byte> row = rows.row(block.layer, head, block.part, p);
      std::copy(row.begin(), row.end(), out);  // none where nothing is held
      continue;
    }
    if (!rows.read(block.layer, head, block.part, p, floats.data())) continue;
    if (turned) rotate(floats, layer.frequencies, segment.shift);
    encode_row(array.dtype, floats.data(), layer.head_dim, out);
  }
}

}  // namespace

std::int64_t row_bytes(const StateImage& image, const LayoutArray& array) {
  return dtype_bytes(array.dtype,
                     image.spec.layers[static_cast<std::size_t>(array.blocks[0].layer)].head_dim);
}

void read_rows(const StateRows& rows, const LayoutArray& array, const LayoutBlock& block, int head,
               std::byte* out) {
  const std::int64_t bytes = row_bytes(rows.image(), array);
  for (const Segment& s : rows.image().segments) {
    const Pos from = std::max(array.rows.first, s.first + s.shift),
              to = std::min(array.rows.last, s.last + s.shift);
    if (from < to)
      read_segment(rows, array, block, head, {from - s.shift, to - s.shift, s.shift},
                   out + (from - array.rows.first) * bytes);
  }
}

void read_array(const StateRows& rows, const LayoutArray& array, std::byte* out) {
  const std::int64_t bytes = row_bytes(rows.image(), array);
  for (const LayoutBlock& block : array.blocks)
    for (int head = 0; head < rows.image().spec.layers[static_cast<std::size_t>(block.layer)].kv_heads;
         ++head, out += array.capacity * bytes) {
      read_rows(rows, array, block, head, out);
      std::memset(out + array.rows.size() * bytes, 0,
                  static_cast<std::size_t>((array.capacity - array.rows.size()) * bytes));
    }
}

void write_array(KvState& state, const LayoutArray& array, const std::byte* bytes, std::int64_t capacity) {
  for (const LayoutBlock& block : array.blocks) {
    const LayerSpec& layer = state.spec().layers[static_cast<std::size_t>(block.layer)];
    const std::int64_t row = dtype_bytes(array.dtype, layer.head_dim);
    const std::int64_t elements = array.rows.size() * layer.head_dim;
    for (int head = 0; head < layer.kv_heads; ++head, bytes += capacity * row) {
      if (array.rows.size() == 0) continue;
      if (!scales_finite(array.dtype, bytes, elements))
        throw Error(ErrorCode::invalid_argument,
                    cat("array ", quoted(array.name), " holds NaN or infinity in layer ", block.layer));
      const RowSpan target = state.rows_of_head(block.layer, head, block.part, array.rows);
      for (std::int64_t r = 0; r < target.rows; ++r) std::copy_n(bytes + r * row, row, target.row(r).data());
    }
  }
}

}  // namespace kvtide
