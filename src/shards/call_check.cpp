#include "shards/call_check.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/checksum.h"
#include "base/refuse.h"
#include "base/text.h"

namespace kvtide {
namespace {

// Tables in f16 and angles in f32 stay within this; rows of the neighbouring position do not, since the
// fastest pair turns by more.
constexpr double kRounding = 0.02, kRoundingOfAngle = 2.4e-7;

class RowsOfCall {
 public:
  RowsOfCall(const RopeFrequencies& table, std::span<const float> cosine, std::span<const float> sine)
      : table_(table), cosine_(cosine), sine_(sine) {}

  bool are_of(std::int64_t column, Pos position) const {
    const double allowed = table_.magnitude * (kRounding + kRoundingOfAngle * static_cast<double>(position));
    const std::size_t pairs = table_.frequencies.size();
    for (std::size_t i = 0; i < pairs; ++i) {
      const std::size_t at = static_cast<std::size_t>(column) * pairs + i;
      const double angle = static_cast<double>(position) * table_.frequencies[i];
      const double off = std::hypot(static_cast<double>(cosine_[at]) - std::cos(angle) * table_.magnitude,
                                    static_cast<double>(sine_[at]) - std::sin(angle) * table_.magnitude);
      if (std::isfinite(off) && off > allowed) return false;  // what is not finite has an error of its own
    }
    return true;
  }

  std::optional<Pos> position_of(std::int64_t column, Pos most) const {
    for (Pos position = 0; position <= most; ++position)
      if (are_of(column, position)) return position;
    return std::nullopt;
  }

 private:
  const RopeFrequencies& table_;
  std::span<const float> cosine_, sine_;
};

void check_sight(const ShardInfo& shard, Pos first, std::span<const Pos> lowest) {
  if (shard.window) return;
  for (std::size_t t = 0; t < lowest.size(); ++t) {
    const Pos own = first + static_cast<Pos>(t);
    if (own > 0 && lowest[t] == own)
      refuse(cat("shard ", shard.name, ": column ", t, " sees nothing but its own slot ", own, ", though ",
                 own == 1 ? "slot 0 is" : cat("slots 0 to ", own - 1, " are"),
                 " in use: a mask as long as the call hides the past. Show it the slots from 0 on; a host "
                 "that means to hide them says so (hides_past)"));
  }
}

void check_rotation(const ShardInfo& shard, const RopeFrequencies& table, Pos first, std::int64_t columns,
                    const ShardInputs& inputs) {
  const RowsOfCall rows(table, inputs.rope_cos, inputs.rope_sin);
  for (std::int64_t t = 0; t < columns; ++t) {
    const Pos own = first + t;
    if (rows.are_of(t, own)) continue;
    const std::optional<Pos> other = rows.position_of(t, first + columns);
    refuse(cat("shard ", shard.name, ": column ", t, " is written to slot ", own,
               ", but its rows of rope_cos and rope_sin are ",
               other ? cat("those of position ", *other) : cat("no row of rope table ", shard.rope),
               ". Pass the rows of position ", own,
               " (rope_rows); a host that counts positions otherwise says so (other_positions)"));
  }
}

}  // namespace

void check_call(const ShardInfo& shard, std::span<const RopeFrequencies> ropes, Pos first,
                std::span<const Pos> lowest, const ShardInputs& inputs) {
  if (!inputs.hides_past) check_sight(shard, first, lowest);
  if (!inputs.other_positions && !inputs.rope_cos.empty())
    check_rotation(shard, ropes[static_cast<std::size_t>(shard.rope)], first,
                   static_cast<std::int64_t>(lowest.size()), inputs);
}

std::uint32_t rows_checksum(const ShardManifest& manifest, const ShardEntry& shard) {
  std::string files;
  for (const ShardEntry& one : manifest.shards)
    if (one.info.name == shard.info.name || one.info.kind == ShardKind::embedding ||
        (one.info.kind != ShardKind::head && one.info.layer < shard.info.layer))
      files += cat(one.info.name, " ", one.file.crc32c, "\n");
  return crc32c(std::as_bytes(std::span(files)));
}

}  // namespace kvtide
