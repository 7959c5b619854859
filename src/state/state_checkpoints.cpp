// state_checkpoints.cpp: checkpoints of a KvState: made, kept within their budget, and found again.
#include <algorithm>

#include "kernels/attend_kernel.h"
#include "state/state.h"

namespace kvtide {

// Where a gap was closed, older rows are seen nearer than they were written: what a window held then is not what it
// would hold again.
bool KvState::has_checkpoints() const {
  return !past_ && needs_checkpoints(spec_) && before_edits(held_, position());
}

// The checkpoints with one more; as they are when its budget has no room for it.
std::vector<Pos> KvState::with_checkpoint(Pos position) const {
  std::vector<Pos> all = checkpoints_;
  if (!has_checkpoints() || (!all.empty() && all.back() == position) ||
      kvtide::checkpoint_bytes(spec_, {position}) > spec_.checkpoints.budget)
    return all;
  all.push_back(position);
  return within_budget(spec_, std::move(all), position);
}

bool KvState::checkpoint() {
  if (position() == 0 || (!past_ && !needs_checkpoints(spec_))) return true;  // it can be gone back to anyway
  std::vector<Pos> all = with_checkpoint(position());
  if (all.empty() || all.back() != position()) return false;
  if (all == checkpoints_) return true;
  checkpoints_ = std::move(all);
  recurrent_.forget(position() - spec_.slack, checkpoints_);
  sweeps_ = true;
  ++generation_;
  return true;
}

void KvState::set_checkpoints(const Checkpoints& checkpoints) {
  KvSpec spec = spec_;
  spec.checkpoints = checkpoints;
  check(spec);
  std::vector<Pos> left = within_budget(spec, checkpoints_, position());
  spec_.checkpoints = checkpoints;
  if (left == checkpoints_) return;
  checkpoints_ = std::move(left);
  recurrent_.forget(position() - spec_.slack, checkpoints_);
  sweeps_ = true;
  ++generation_;
}

Pos KvState::nearest_to(Pos length) const {
  if (length >= position()) return position();
  if (why_not_back_to(length).empty()) return length;
  std::vector<Pos> known = recurrent_.positions();
  known.insert(known.end(), checkpoints_.begin(), checkpoints_.end());
  Pos nearest = 0;
  for (const Pos at : known)
    if (at > nearest && at < length && why_not_back_to(at).empty()) nearest = at;
  return nearest;
}

// Positions [from, to) of a layer, but for what checkpoints need of them.
void KvState::drop_but_checkpoints(std::size_t i, Pos from, Pos to) {
  for (const Pos at : checkpoints_) {
    const PosRange kept = kept_for(spec_, spec_.layers[i], at);
    if (from < std::min(kept.first, to)) layers_[i].drop(from, std::min(kept.first, to));
    from = std::max(from, kept.last);
  }
  if (from < to) layers_[i].drop(from, to);
}

bool KvState::holds(std::size_t layer, Pos first, Pos last) const {
  Pos held = 0;
  for (const LayerRows::Run& run : layers_[layer].runs(first, last)) held += run.last - run.first;
  return held >= last - first;
}

// What released_ is once only `length` positions remain.
std::vector<Pos> KvState::released_behind(Pos length) const {
  std::vector<Pos> released = released_;
  for (std::size_t i = 0; i < released.size(); ++i) {
    if (released[i] < length) continue;
    released[i] = length;
    const std::vector<LayerRows::Run> runs = layers_[i].runs(0, length);
    for (auto run = runs.rbegin(); run != runs.rend() && run->last == released[i]; ++run)
      released[i] = run->first;
  }
  return released;
}

std::int64_t KvState::checkpoint_bytes() const {
  std::int64_t bytes = recurrent_.bytes_before(position() - spec_.slack);
  if (past_) return bytes;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerSpec& layer = spec_.layers[i];
    const Pos keep = spec_.rolling && !layer.window ? spec_.rolling->sinks : 0;
    const Pos needed = oldest_needed(spec_, layer, position()) / kTileRows * kTileRows;
    for (const LayerRows::Run& run : layers_[i].runs(keep, std::max(keep, needed)))
      bytes += page_bytes(layers_[i].format(), run.first, run.last);
  }
  return bytes;
}

}  // namespace kvtide
