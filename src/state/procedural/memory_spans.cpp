// What queries see of the past, and from how far away.
#include "state/procedural/memory.h"

#include <algorithm>
#include <cmath>

#include "state/procedural/far.h"
#include "state/procedural/reference_rows.h"

namespace kvtide {
// How much nearer a block is seen after a seal at `position`, from `most` at most, whose rows begin `reach` before `first`.
Pos ProceduralMemory::shift_of(Pos first, Pos position, Pos most, Pos reach) const {
  if (most == 0) return 0;
  const Pos distance = position - first;
  return distance -
         std::min(seen_distance(spec_.far, distance, position, most), std::max<Pos>(1, most - reach));
}

float ProceduralMemory::mass_of(Pos first, Pos last, Pos position) const {
  return spec_.far_from == 0 ? 0.0f : far_mass(position - last, position - first, position, spec_.far_from);
}

// Far neighbours share a turn: turning costs as much as reading some dozens of rows, which is all
// that is left of an old block.
void ProceduralMemory::move_full_blocks(std::vector<FullBlock>& blocks, Pos position) {
  const Pos most = full_heads_see(spec_.far_from, position);
  for (std::size_t end = blocks.size(); end > 0;) {
    const Pos newest = blocks[end - 1].first;
    const Pos apart = seen_distance(spec_.far, position - newest, position, most) / kTurnShare;
    std::size_t begin = end - 1;
    while (begin > 0 && newest - blocks[begin - 1].first <= apart) --begin;
    const Pos shift = shift_of(newest, position, most, newest - blocks[begin].first);
    for (; end > begin; --end) blocks[end - 1].shift = shift;
    turns_.push_back(shift);
  }
}

// How every block is seen from now until the next seal.
void ProceduralMemory::move_blocks(Pos position) {
  if (spec_.far_from == 0) return;
  turns_.clear();
  for (Block& block : blocks_) {
    turns_.push_back(block.shift = shift_of(newest_part(block), position, spec_.far_from, block.reach));
    block.mass = mass_of(block.first, block.last, position);
  }
  move_full_blocks(full_, position);
  move_full_blocks(whole_, position);
  sink_shift_ = std::max<Pos>(0, position - spec_.far_from);
  turns_.push_back(sink_shift_);
  std::sort(turns_.begin(), turns_.end());
  turns_.erase(std::unique(turns_.begin(), turns_.end()), turns_.end());
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const auto& frequencies = spec_.frequencies[layer];
    if (spec_.plans[layer].empty() || turns_like_[layer] != layer) continue;
    // No more than is used: doubling would overrun a budget, and bytes must not tell how many turns there once were.
    const std::size_t numbers = turns_.size() * 2 * frequencies.size();
    if (angles_[layer].capacity() != numbers) std::vector<float>().swap(angles_[layer]);
    angles_[layer].clear();
    angles_[layer].reserve(numbers);
    for (const Pos shift : turns_) add_turn(frequencies, shift, angles_[layer]);
  }
}

const float* ProceduralMemory::rotation(int layer, Pos shift) const {
  if (shift == 0) return nullptr;
  const auto& angles = angles_[turns_like_[static_cast<std::size_t>(layer)]];
  const auto turn = std::lower_bound(turns_.begin(), turns_.end(), shift) - turns_.begin();
  return angles.data() + turn * 2 * rotation_pairs(layer);
}

const float* ProceduralMemory::sink_rotation(int layer) const { return rotation(layer, sink_shift_); }

std::vector<ProceduralMemory::SealedBlock> ProceduralMemory::sealed_blocks(int layer) const {
  std::vector<SealedBlock> blocks;
  for (Pos last = spec_.block; last <= sealed_; last += spec_.block) {
    SealedBlock& block = blocks.emplace_back();
    block.first = first_sealed_before(spec_, last);
    block.last = last;
    block.mass = mass_of(block.first, block.last, last_seal());
    const auto turn_within = [&](Pos most, std::vector<float>& rotation) {
      const Pos shift = shift_of(block.first, last_seal(), most);
      if (shift != 0) add_turn(spec_.frequencies[static_cast<std::size_t>(layer)], shift, rotation);
    };
    turn_within(spec_.far_from, block.rotation);
    turn_within(full_heads_see(spec_.far_from, last_seal()), block.full_rotation);
  }
  return blocks;
}

Pos ProceduralMemory::position_of(int layer, int h, const std::byte* key) const {
  const Head& source = head(layer, h);
  const HeadRows& rows = *source.rows;
  // Addresses of different arrays compare as numbers.
  const auto offset = reinterpret_cast<std::intptr_t>(key) - reinterpret_cast<std::intptr_t>(rows.key(0));
  if (offset >= 0 && offset < rows.rows() * rows.key_bytes()) return rows.position(offset / rows.key_bytes());
  return spec_.sinks + (key - source.spilled->key(0)) / rows.key_bytes();
}

void ProceduralMemory::append_spans(int layer, int h, std::optional<std::int64_t> newest, Pos reader,
                                    std::vector<Span>& spans) const {
  const Head& source = head(layer, h);
  const HeadPlan& p = plan(layer, h);
  const std::size_t begin_spans = spans.size();
  const auto add = [&](std::size_t b, const std::byte* keys, const std::byte* values, const float* bias,
                       std::int64_t rows) {
    const Pos first = p.whole ? whole_[b].first : p.full ? full_[b].first : blocks_[b].first;
    const Pos shift = p.whole ? whole_[b].shift : p.full ? full_[b].shift : blocks_[b].shift;
    const float mass = p.full ? 0.0f : blocks_[b].mass;
    std::optional<Pos> last_reader;
    if (newest) last_reader = first + *newest - 1;
    const float* turn = rotation(layer, shift);
    if (rows == 0 || (last_reader && reader > *last_reader)) return;
    if (spans.size() > begin_spans) {
      Span& back = spans.back();
      if (back.rotation == turn && back.mass == mass && back.last_reader == last_reader &&
          back.keys + back.rows * back.key_stride == keys) {
        back.rows += rows;
        return;
      }
    }
    Span span;
    span.keys = keys;
    span.values = values;
    span.key_type = span.value_type = type_of_rows(spec_, p);
    span.spread = is_spread(spec_, p);
    span.mean_key = source.mean_key.empty() ? nullptr : source.mean_key.data();
    span.key_stride = source.rows->key_bytes();
    span.value_stride = source.rows->value_bytes();
    span.rows = rows;
    span.log_mass = bias;
    span.rotation = turn;
    span.rotation_pairs = turn == nullptr ? 0 : rotation_pairs(layer);
    span.last_reader = last_reader;
    span.mass = mass;
    spans.push_back(span);
  };
  std::size_t b = 0;
  std::int64_t row = 0;
  // Blocks of a whole head have the size of their part of the text.
  if (source.spilled != nullptr)
    for (; b < static_cast<std::size_t>(source.spilled->blocks()); ++b) {
      const std::int64_t rows = whole_[b + 1].first - whole_[b].first;
      add(b, source.spilled->key(row), source.spilled->value(row), nullptr, rows);
      row += rows;
    }
  row = 0;
  for (const std::int64_t rows : source.block_rows) {
    const float* bias = source.rows->bias();
    add(b++, source.rows->key(row), source.rows->value(row), bias == nullptr ? nullptr : bias + row, rows);
    row += rows;
  }
}

}  // namespace kvtide
