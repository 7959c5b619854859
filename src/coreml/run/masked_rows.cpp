#include "coreml/run/masked_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "base/text.h"
#include "coreml/run/convert.h"
#include "coreml/run/journal.h"

namespace kvtide::coreml {
namespace masked_rows_details {

constexpr std::uint16_t kOne = 0x3c00;

struct Extents {
  std::int64_t heads = 1, slots = 0, tokens = 0, width = 0;
};

Extents extents_of(Call& call) {
  const Shape &old = call.in(0).shape, &kept = call.in(1).shape, &mask = call.in(2).shape,
              &rows = call.in(3).shape;
  const std::size_t rank = old.size();
  Extents e;
  bool fits = rank >= 2 && rows.size() == rank && mask.size() >= 2 && kept.size() >= 2;
  if (fits) {
    e.slots = old[rank - 2];
    e.width = old[rank - 1];
    e.tokens = mask.back();
    for (std::size_t i = 0; i + 2 < rank; ++i) {
      e.heads *= old[i];
      fits = fits && rows[i] == old[i];
    }
    fits = fits && rows[rank - 2] == e.tokens && rows.back() == e.width &&
           elements_in(mask) == e.slots * e.tokens && mask[mask.size() - 2] == e.slots &&
           elements_in(kept) == e.slots && kept[kept.size() - 2] == e.slots;
  }
  if (!fits)
    call.refuse(cat("a state of ", text_of(old), ", rows of ", text_of(rows), ", a mask of ", text_of(mask),
                    " and one of ", text_of(kept)));
  return e;
}

bool is_nothing(std::uint16_t half) { return (half & 0x7fffu) == 0; }

// The slots that do not stay as they are.
std::vector<std::int64_t> changed_slots(Call& call, const Extents& e) {
  const auto* kept = call.in(1).as<const std::uint16_t>();
  const auto* mask = call.in(2).as<const std::uint16_t>();
  const auto* rows = call.in(3).as<const std::uint16_t>();
  // Nothing times infinity is no number, in every slot.
  const bool finite = std::all_of(rows, rows + e.heads * e.tokens * e.width,
                                  [](std::uint16_t half) { return (half & 0x7c00u) != 0x7c00u; });
  std::vector<std::int64_t> slots;
  for (std::int64_t s = 0; s < e.slots; ++s)
    if (!finite || kept[s] != kOne ||
        !std::all_of(mask + s * e.tokens, mask + (s + 1) * e.tokens, is_nothing))
      slots.push_back(s);
  return slots;
}

void write_slot(Call& call, const Extents& e, std::int64_t slot, const float* rows, std::uint16_t* state) {
  const float kept = f16_to_f32(call.in(1).as<const std::uint16_t>()[slot]);
  const auto* mask = call.in(2).as<const std::uint16_t>() + slot * e.tokens;
  const auto rounded = [](float value) { return f16_to_f32(f32_to_f16(value)); };
  for (std::int64_t head = 0; head < e.heads; ++head)
    for (std::int64_t i = 0; i < e.width; ++i) {
      std::uint16_t& here = state[(head * e.slots + slot) * e.width + i];
      float given = 0.0f;
      for (std::int64_t t = 0; t < e.tokens; ++t)
        given += f16_to_f32(mask[t]) * rows[(head * e.tokens + t) * e.width + i];
      here = f32_to_f16(rounded(f16_to_f32(here) * kept) + rounded(given));
    }
}

void masked_rows(Call& call) {
  const Tensor old = call.in(0);
  const Extents e = extents_of(call);
  const auto slots = changed_slots(call, e);
  Tensor result = old;
  if (!call.in_place) {
    result = call.run.tensors.take(old.dtype, old.shape);
    std::memcpy(result.data.get(), old.data.get(), old.bytes());
  } else if (call.journal != nullptr) {
    for (const std::int64_t slot : slots)
      call.journal->save_part(call.run, old, slot * e.width, {e.heads, e.width}, {e.slots * e.width, 1});
  }
  const Floats rows(call.run, call.in(3));
  for (const std::int64_t slot : slots) write_slot(call, e, slot, rows.data(), result.as<std::uint16_t>());
  call.give(result);
}

bool is_step(const std::vector<Step>& steps, int number, std::string_view type) {
  return number != kAbsent && steps[static_cast<std::size_t>(number)].row->type == type;
}

}  // namespace masked_rows_details

using namespace masked_rows_details;

OperationRow masked_rows_operation() {
  return operation("masked rows", {"old", "kept", "mask", "rows"}, masked_rows);
}

std::optional<MaskedWrite> masked_write_of(const std::vector<Step>& steps, std::size_t write,
                                           const std::vector<int>& maker, const std::vector<int>& uses,
                                           const std::vector<ValueType>& types,
                                           const std::vector<Slot>& slots) {
  const auto made_by = [&](int slot) { return maker[static_cast<std::size_t>(slot)]; };
  const auto once = [&](int slot) { return uses[static_cast<std::size_t>(slot)] == 1; };
  const auto given = [&](int step, std::size_t parameter) {
    const auto& list = steps[static_cast<std::size_t>(step)].arguments[parameter];
    return list.empty() ? kAbsent : list[0];
  };
  const int data = steps[write].arguments[1][0], sum = made_by(data);
  if (!is_step(steps, sum, "add") || !once(data)) return std::nullopt;
  for (const std::size_t first : {std::size_t{0}, std::size_t{1}}) {
    const int a = given(sum, first), b = given(sum, 1 - first), scaled = made_by(a), chosen = made_by(b);
    if (!is_step(steps, scaled, "mul") || !is_step(steps, chosen, "matmul") || !once(a) || !once(b)) continue;
    MaskedWrite found;
    found.scaled = static_cast<std::size_t>(scaled);
    found.chosen = static_cast<std::size_t>(chosen);
    found.sum = static_cast<std::size_t>(sum);
    const bool read_first = is_step(steps, made_by(given(scaled, 0)), "read_state");
    found.old = given(scaled, read_first ? 0 : 1);
    found.kept = given(scaled, read_first ? 1 : 0);
    found.mask = given(chosen, 0);
    found.rows = given(chosen, 1);
    const int read = made_by(found.old);
    bool fits = is_step(steps, read, "read_state") &&
                steps[static_cast<std::size_t>(read)].state == steps[write].state && once(found.old);
    for (std::size_t i = static_cast<std::size_t>(std::max(read, 0)); fits && i < write; ++i)
      fits = !(steps[i].row->type == "write_state" && steps[i].state == steps[write].state);
    for (const std::size_t parameter : {std::size_t{2}, std::size_t{3}})  // transposed: another product
      if (const int flag = given(chosen, parameter); fits && flag != kAbsent) {
        const Slot& slot = slots[static_cast<std::size_t>(flag)];
        fits = slot.constant && slot.tensor.data && *slot.tensor.data == std::byte{0};
      }
    const auto type = [&](int slot) -> const ValueType& { return types[static_cast<std::size_t>(slot)]; };
    for (const int slot : {found.old, found.kept, found.mask, found.rows, a, b, data})
      fits =
          fits && type(slot).dtype == DataType::fp16 && !type(slot).any_rank && type(slot).shape.size() >= 2;
    if (!fits) continue;
    const Shape &state = type(found.old).shape, &mask = type(found.mask).shape,
                &kept = type(found.kept).shape;
    const std::int64_t rows = state[state.size() - 2];
    const auto is_row_mask = [&](const Shape& shape) {
      return shape[shape.size() - 2] == rows &&
             std::all_of(shape.begin(), shape.end() - 2, [](std::int64_t size) { return size == 1; });
    };
    if (is_row_mask(mask) && is_row_mask(kept) && kept.back() == 1) return found;
  }
  return std::nullopt;
}

}  // namespace kvtide::coreml
