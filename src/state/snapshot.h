// snapshot.h: a state, and what is needed to go on with it, as a file. Format: docs/snapshot_format.md.
//
// save_snapshot is atomic and durable (base/file.h). load_snapshot checks everything into fresh memory: it
// gives a whole new state or throws, and touches nothing else.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "state/state.h"

namespace kvtide {

// What a snapshot holds beside the state.
struct SnapshotExtras {
  std::map<std::string, std::string> identity;  // what the rows belong to: {"model", sha256}, ...
  bool exact = false;
  std::vector<TokenId> tokens;  // everything read
  std::vector<float> logits;    // after the last token
};

struct Snapshot {
  KvState state;
  SnapshotExtras extras;
  int minor = kSnapshotMinor;  // of the file that it came from
};

// Throws Error(io); the old file is then untouched. `later`: a loss of power may leave a file that is refused.
void save_snapshot(FileSystem& files, const std::string& path, const KvState& state,
                   const SnapshotExtras& extras, Flush flush = Flush::now);

// Throws Error: not_found, io, bad_format (damaged, or not a snapshot), unsupported (a newer version),
// out_of_memory. expected: identity entries that must be equal, or Error(invalid_argument) names both.
Snapshot load_snapshot(FileSystem& files, const std::string& path,
                       const std::map<std::string, std::string>& expected = {});
// The same of bytes that are no file; messages call them `path`.
Snapshot load_snapshot(ByteStream& file, const std::string& path,
                       const std::map<std::string, std::string>& expected = {});

// What a snapshot says of itself, rows left where they are: `image` is without runs, `extras` without logits.
struct SnapshotFront {
  StateImage image;
  SnapshotExtras extras;
  std::uint64_t file_bytes = 0;
};

// Throws what load_snapshot throws, for a header that is damaged and a file of another length than it says. Damaged rows
// are told by load_snapshot alone.
SnapshotFront read_snapshot_front(FileSystem& files, const std::string& path);

}  // namespace kvtide
