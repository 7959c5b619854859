// segment.h: a snapshot as what has been added since another one: ranges of that one, and bytes that are new. Sessions that
// go to a store after every turn are written so. Format: docs/snapshot_format.md, "Segments".
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "state/snapshot.h"

namespace kvtide {

// The segment that another one goes on from.
struct SegmentBefore {
  std::string path;
  std::string name;  // by which readers know it
};

// Like save_snapshot. What the snapshot has in common with the one before is found by sums of its rows, and not written.
// Where nothing is found, or nothing can be read there, the segment holds everything and names none before it.
void save_segment(FileSystem& files, const std::string& path, const KvState& state,
                  const SnapshotExtras& extras, const std::optional<SegmentBefore>& before,
                  Flush flush = Flush::now);

// `paths`: a segment that holds everything, and those that go on from it, in order. Throws what load_snapshot throws.
Snapshot load_segments(FileSystem& files, const std::vector<std::string>& paths);

}  // namespace kvtide
