// segment_format.h: what writing and reading a segment share: its head, and the pieces of a snapshot that segments have sums of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "state/snapshot_format.h"

namespace kvtide::segment_format {

// Bytes of the snapshot in the making: copied from byte `from` of the one before, or, without it, the segment's next.
struct Part {
  std::optional<std::uint64_t> from;
  std::uint64_t bytes = 0;
};

struct Head {
  std::uint64_t bytes = 0;            // of the snapshot
  std::optional<std::string> source;  // the name of the segment before
  std::vector<Part> parts;            // copied ones ascend
  std::vector<std::uint32_t> sums;    // CRC-32C of each piece; a segment may be without
};

// The JSON of a head, with magic and length before it.
std::vector<std::byte> written(const Head& head);

// Throws Error(bad_format), which names `path`: not a segment, or parts that the file does not have.
Head read_head(ByteStream& file, const std::string& path);

// Consecutive rows of one head of a tensor `layers.*`, or a whole other tensor: what has a sum of its own.
struct Piece {
  std::size_t tensor = 0;  // its place in the header
  std::int64_t head = 0;
  Pos first = 0;
  std::int64_t rows = 1;
  std::uint64_t at = 0, bytes = 0;  // in the file of the snapshot
};

// Is it one of rows, shape [heads, rows, ...]?
bool holds_rows(const SnapshotTensor& tensor);

// In the order of the file. Throws Error(bad_format): tensors that cannot be, or more pieces than `most`.
std::vector<Piece> pieces_of(const snapshot_format::SnapshotStart& start, std::size_t most);

}  // namespace kvtide::segment_format
