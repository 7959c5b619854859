#include "serve/work/disk_index.h"

#include <algorithm>
#include <utility>

#include "serve/work/prefix_cache.h"
#include "state/spec/bytes.h"

namespace kvtide::serve {
namespace disk_index {

// What reading a text again costs, in bytes of rows that would be made: about in proportion to time, for any model.
double cost(const DiskEntry& entry) {
  std::int64_t row = 0;
  for (const LayerSpec& layer : entry.kind.spec.layers) row += row_bytes(layer, DType::f16, DType::f16);
  return static_cast<double>(entry.tokens.size()) * static_cast<double>(std::max<std::int64_t>(row, 1));
}

}  // namespace disk_index

std::int64_t DiskEntry::least_length() const {
  const KvSpec& spec = kind.spec;
  const auto length = static_cast<std::int64_t>(tokens.size());
  const bool forgets = spec.rolling || spec.procedural || !spec.recurrent.empty() ||
                       std::any_of(spec.layers.begin(), spec.layers.end(), [&](const LayerSpec& layer) {
                         return layer.window && *layer.window + spec.slack < length;
                       });
  return forgets ? std::max<std::int64_t>(1, length - spec.slack) : 1;
}

std::int64_t DiskEntry::left_of(std::int64_t same) const {
  if (same >= least_length()) return same;
  const auto next = std::upper_bound(checkpoints.begin(), checkpoints.end(), same);
  return next == checkpoints.begin() ? 0 : *(next - 1);
}

DiskIndex::Hit DiskIndex::find(const std::string& model, std::span<const TokenId> text,
                               const MemoryKind& kind) const {
  Hit best;
  for (const DiskEntry& entry : entries_) {
    if (entry.model != model || !keep_alike(entry.kind, kind)) continue;
    const std::int64_t left = entry.left_of(common_prefix(entry.tokens, text));
    if (left > best.length) best = {&entry, left};
  }
  return best;
}

void DiskIndex::add(DiskEntry entry) {
  remove(entry.file);
  bytes_ += entry.bytes;
  entries_.push_back(std::move(entry));
}

bool DiskIndex::remove(const std::string& file) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const DiskEntry& entry) { return entry.file == file; });
  if (found == entries_.end()) return false;
  bytes_ -= found->bytes;
  entries_.erase(found);
  return true;
}

void DiskIndex::touch(const std::string& file, double now) {
  for (DiskEntry& entry : entries_)
    if (entry.file == file) entry.used = now;
}

std::vector<std::string> DiskIndex::covered_by(const DiskEntry& whole) const {
  std::vector<std::string> out;
  for (const DiskEntry& entry : entries_) {
    const auto length = static_cast<std::int64_t>(entry.tokens.size());
    if (entry.file != whole.file && entry.model == whole.model && keep_alike(entry.kind, whole.kind) &&
        length >= whole.least_length() && common_prefix(entry.tokens, whole.tokens) == length)
      out.push_back(entry.file);
  }
  return out;
}

const DiskEntry* DiskIndex::first_to_go(double now) const {
  const auto worth = [&](const DiskEntry& entry) {
    const double bytes = static_cast<double>(std::max<std::int64_t>(entry.bytes, 1));
    return disk_index::cost(entry) / (bytes * std::max(now - entry.used, 1e-3));
  };
  const auto first =
      std::min_element(entries_.begin(), entries_.end(),
                       [&](const DiskEntry& a, const DiskEntry& b) { return worth(a) < worth(b); });
  return first == entries_.end() ? nullptr : &*first;
}

}  // namespace kvtide::serve
