#include "state/state_rows.h"

#include <algorithm>

#include "kernels/codec.h"
#include "kernels/hadamard.h"

namespace kvtide {

StateRows::StateRows(const KvState& state) : image_(state.image()) {
  for (std::size_t layer = 0; layer < image_.runs.size(); ++layer) {
    layers_.emplace_back();
    for (const LayerRows::Run& run : state.layer_rows(static_cast<int>(layer)).runs(0, state.position())) {
      Piece piece{{run.first, run.last}, {}, {}};
      for (int head = 0; head < image_.spec.layers[layer].kv_heads; ++head) {
        piece.keys.push_back(state.rows_of_head(static_cast<int>(layer), head, KvPart::keys, piece.rows));
        piece.values.push_back(state.rows_of_head(static_cast<int>(layer), head, KvPart::values, piece.rows));
      }
      layers_.back().push_back(std::move(piece));
    }
  }
}

DType StateRows::dtype(KvPart part) const {
  return part == KvPart::keys ? image_.spec.key_type : image_.spec.value_type;
}

const std::vector<PosRange>& StateRows::runs(int layer) const {
  return image_.runs[static_cast<std::size_t>(layer)];
}

std::span<const std::byte> StateRows::row(int layer, int head, KvPart part, Pos position) const {
  const std::vector<Piece>& pieces = layers_[static_cast<std::size_t>(layer)];
  const auto after = std::upper_bound(pieces.begin(), pieces.end(), position,
                                      [](Pos pos, const Piece& piece) { return pos < piece.rows.first; });
  if (after == pieces.begin() || position >= (after - 1)->rows.last) return {};
  const Piece& piece = *(after - 1);
  const auto& heads = part == KvPart::keys ? piece.keys : piece.values;
  return heads[static_cast<std::size_t>(head)].row(position - piece.rows.first);
}

bool StateRows::read(int layer, int head, KvPart part, Pos position, float* out) const {
  const std::span<const std::byte> bytes = row(layer, head, part, position);
  if (bytes.empty()) return false;
  const int head_dim = image_.spec.layers[static_cast<std::size_t>(layer)].head_dim;
  decode_row(dtype(part), bytes.data(), head_dim, out);
  if (is_spread(image_.spec)) hadamard(out, head_dim);
  return true;
}

}  // namespace kvtide
