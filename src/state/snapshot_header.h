// snapshot_header.h: the JSON header of a snapshot as plain data, written (snapshot_header_write.cpp) and read
// (snapshot_header_read.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "state/snapshot.h"

namespace kvtide {

struct SnapshotTensor {
  std::string name;                         // "layers.3.k", "layers.3.v", "logits"
  std::optional<DType> dtype = DType::f32;  // nullopt: i32
  std::vector<std::int64_t> shape;
  Pos first = 0;
  std::uint64_t offset = 0, bytes = 0;  // in the payload
};

struct SnapshotHeader {
  int minor = kSnapshotMinor;  // version of the format within version 1
  StateImage image;            // without runs: they follow from the tensors
  SnapshotExtras extras;       // without logits
  std::uint64_t payload_bytes = 0;
  std::vector<SnapshotTensor> tensors;
};

std::string write_header(const SnapshotHeader& header);

// Throws Error(bad_format) naming the key that is missing or wrong. Values are typed and within 64 bits;
// whether they fit one another is for the caller to check.
SnapshotHeader read_header(std::string_view text);

}  // namespace kvtide
