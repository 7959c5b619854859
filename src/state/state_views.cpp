// state_views.cpp: looking at and filling the rows of a public State.
#include <algorithm>
#include <cstring>

#include "base/as_size.h"
#include "base/out_of_memory.h"
#include "base/refuse.h"
#include "base/text.h"
#include "kernels/codec.h"
#include "kernels/hadamard.h"
#include "kvtide/error.h"
#include "state/state_object.h"

namespace kvtide {
namespace {

const LayerRows& layer_of(const KvState& kv, int layer) {
  if (layer < 0 || static_cast<std::size_t>(layer) >= kv.spec().layers.size())
    refuse(cat("there is no layer ", layer, ": the state has ", kv.spec().layers.size()));
  return kv.layer_rows(layer);
}

struct Rows {  // of one part of one layer
  DType dtype;
  std::int64_t head_dim;
  int kv_heads;
  std::int64_t row_bytes;
};

Rows rows_of(const KvState& kv, int layer, KvPart part) {
  const LayerSpec& spec = kv.spec().layers[static_cast<std::size_t>(layer)];
  const DType dtype = part == KvPart::keys ? kv.spec().key_type : kv.spec().value_type;
  return {dtype, spec.head_dim, spec.kv_heads, dtype_bytes(dtype, spec.head_dim)};
}

// The rows must lie in one run, and nobody else may be reading them.
void check_writable(const KvState& kv, int layer, const PosRange& positions) {
  const LayerRows& rows = layer_of(kv, layer);
  const auto runs = rows.runs(positions.first, positions.last);
  if (positions.first >= positions.last || runs.size() != 1 || runs[0].first != positions.first ||
      runs[0].last != positions.last)
    refuse(cat("layer ", layer, " does not hold positions ", positions.first, " to ", positions.last,
               " in one piece"));
  constexpr long kOursAndThis = 2;
  if (rows.pin(positions.first).use_count() > kOursAndThis)
    refuse(cat("layer ", layer, ": the rows are seen by a fork or a view, and cannot be written"));
}

}  // namespace

std::vector<PosRange> State::runs(int layer) const try {
  std::vector<PosRange> runs;
  for (const auto& run : layer_of(impl_->kv, layer).runs(0, position()))
    runs.push_back({run.first, run.last});
  return runs;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

RowsView State::view(int layer, KvPart part, const PosRange& positions) const try {
  const LayerRows& rows = layer_of(impl_->kv, layer);
  const auto runs = rows.runs(positions.first, positions.last);
  if (positions.first >= positions.last || runs.size() != 1 || runs[0].first != positions.first ||
      runs[0].last != positions.last)
    refuse(cat("layer ", layer, " does not hold positions ", positions.first, " to ", positions.last,
               " in one piece"));
  const KvState& kv = impl_->kv;
  const ConstRowSpan first = kv.rows_of_head(layer, 0, part, positions);
  RowsView view;
  view.data = first.data;
  view.positions = positions;
  view.kv_heads = rows.format().kv_heads;
  view.row_bytes = first.row_bytes;
  view.row_stride = first.stride;
  view.head_stride = view.kv_heads > 1 ? kv.rows_of_head(layer, 1, part, positions).data - first.data
                                       : positions.size() * first.stride;
  view.pin = rows.pin(positions.first);
  return view;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

PlainRows State::plain_rows(int layer) const try {
  layer_of(impl_->kv, layer);
  const StateImage image = impl_->kv.image();
  const LayerSpec& spec = image.spec.layers[static_cast<std::size_t>(layer)];
  const Pos end = image.position;
  PlainRows plain;
  const auto from = [&](Pos oldest, const char* why) {
    if (oldest <= plain.first) return;
    plain.first = oldest;
    plain.why = why;
  };
  if (!image.segments.empty() && image.segments.back().shift != 0)
    from(end, "the newest positions were moved");
  if (image.segments.size() > 1 || (!image.segments.empty() && image.segments[0].first > 0))
    from(image.segments.back().first, "positions before it were dropped or moved");
  if (const auto& rolling = image.spec.rolling;
      rolling && !spec.window && end > rolling->sinks + rolling->window)
    from(end - rolling->window, "the rolling window has moved on");
  Pos oldest = end;
  const auto& runs = image.runs[static_cast<std::size_t>(layer)];
  for (auto run = runs.rbegin(); run != runs.rend() && run->last == oldest; ++run) oldest = run->first;
  from(oldest, "the layer keeps only its newest positions");
  return plain;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

void State::read(int layer, KvPart part, const PosRange& positions, std::span<float> out) const try {
  const KvState& kv = impl_->kv;
  const LayerRows& rows = layer_of(kv, layer);
  const Rows shape = rows_of(kv, layer, part);
  constexpr Pos kFarthest = Pos{1} << 40;  // what follows cannot overflow
  if (positions.first < 0 || positions.last < positions.first || positions.last > kFarthest)
    refuse(cat("there are no positions ", positions.first, " to ", positions.last));
  if (out.size() != as_size(shape.kv_heads * positions.size() * shape.head_dim))
    refuse(cat("the rows of layer ", layer, " must be [", shape.kv_heads, "][", positions.size(), "][",
               shape.head_dim, "] floats, not ", out.size()));
  std::fill(out.begin(), out.end(), 0.0f);
  for (const auto& run : rows.runs(positions.first, positions.last))
    for (int head = 0; head < shape.kv_heads; ++head) {
      float* to = out.data() + (head * positions.size() + run.first - positions.first) * shape.head_dim;
      const ConstRowSpan from = kv.rows_of_head(layer, head, part, {run.first, run.last});
      for (std::int64_t r = 0; r < from.rows; ++r, to += shape.head_dim) {
        decode_row(shape.dtype, from.row(r).data(), shape.head_dim, to);
        if (is_spread(kv.spec())) hadamard(to, shape.head_dim);
      }
    }
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

void State::write(int layer, KvPart part, const PosRange& positions, std::span<const float> in) try {
  check_writable(impl_->kv, layer, positions);
  const Rows shape = rows_of(impl_->kv, layer, part);
  const std::int64_t elements = positions.size() * shape.head_dim;
  if (in.size() != as_size(shape.kv_heads * elements))
    refuse(cat("layer ", layer, " takes ", shape.kv_heads * elements, " floats for ", positions.size(),
               " positions, not ", in.size()));
  std::vector<std::byte> encoded(as_size(shape.kv_heads * positions.size() * shape.row_bytes));
  std::vector<float> spread;
  if (is_spread(impl_->kv.spec())) {
    spread.assign(in.begin(), in.end());
    for (std::size_t row = 0; row < spread.size(); row += as_size(shape.head_dim))
      hadamard(spread.data() + row, shape.head_dim);
    in = spread;
  }
  encode_row(shape.dtype, in.data(), shape.kv_heads * elements, encoded.data());
  write_raw(layer, part, positions, encoded);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

void State::write_raw(int layer, KvPart part, const PosRange& positions, std::span<const std::byte> in) try {
  check_writable(impl_->kv, layer, positions);
  const Rows shape = rows_of(impl_->kv, layer, part);
  const std::int64_t bytes = positions.size() * shape.row_bytes;
  if (in.size() != as_size(shape.kv_heads * bytes))
    refuse(cat("layer ", layer, " takes ", shape.kv_heads * bytes, " bytes for ", positions.size(),
               " positions, not ", in.size()));
  if (!scales_finite(shape.dtype, in.data(), shape.kv_heads * positions.size() * shape.head_dim))
    throw Error(ErrorCode::numeric, cat("layer ", layer,
                                        ": the rows hold NaN or infinity, or numbers beyond "
                                        "what the state's type can hold"));
  std::vector<RowSpan> targets;  // of all heads, before anything is written
  for (int head = 0; head < shape.kv_heads; ++head)
    targets.push_back(impl_->kv.rows_of_head(layer, head, part, positions));
  for (const RowSpan& target : targets)
    for (std::int64_t r = 0; r < target.rows; ++r, in = in.subspan(as_size(target.row_bytes)))
      std::memcpy(target.row(r).data(), in.data(), as_size(target.row_bytes));
  impl_->extras.logits.clear();
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::vector<CarriedTensor> State::carried() const try {
  std::vector<CarriedTensor> out;
  const RecurrentTensors& tensors = impl_->kv.recurrent();
  for (std::size_t i = 0; i < tensors.count(); ++i) {
    const RecurrentSpec& spec = tensors.spec(i);
    const std::int64_t count = recurrent_elements(spec);
    out.push_back({spec.name, spec.shape, std::vector<float>(as_size(count))});
    decode_row(spec.dtype, tensors.value(i).data(), count, out.back().values.data());
  }
  return out;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
