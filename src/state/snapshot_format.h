// snapshot_format.h: what writing and reading a snapshot file share: its constants, the order of its tensors,
// and the sums of its chunks. The format: docs/snapshot_format.md.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "state/rows/row_span.h"
#include "state/snapshot_header.h"

namespace kvtide::snapshot_format {

inline constexpr char kMagic[9] = "KVTIDE\0\1";
inline constexpr char kEnd[9] = "KVTIDEND";
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint64_t kPrefix = 24;  // magic, version, header CRC, header length
inline constexpr std::uint64_t kTrailer = 32 + 8 + 8;
inline constexpr std::uint64_t kChunk = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kAlign = 64;
inline constexpr std::uint64_t kLargestHeader = std::uint64_t{64} << 20;

inline std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

inline std::span<const std::byte> bytes_of(const std::vector<std::uint32_t>& values) {
  return std::as_bytes(std::span(values));
}

// CRCs of the chunks of a payload that comes in pieces.
class ChunkSums {
 public:
  void add(std::span<const std::byte> bytes);
  const std::vector<std::uint32_t>& finish();  // once

 private:
  void close();
  std::vector<std::uint32_t> sums_;
  std::uint32_t crc_ = 0;
  std::uint64_t filled_ = 0;
};

// Hands `bytes` on in parts that stay in a processor's cache, for work that passes over them twice.
template <class Bytes>
void in_parts(Bytes bytes, FunctionRef<void(Bytes)> work) {
  constexpr std::size_t kPart = std::size_t{1} << 18;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(kPart, bytes.size())))
    work(bytes.first(std::min(kPart, bytes.size())));
}

// The one place that knows the order of the tensors: runs of rows, keys before values; tensors without a sequence
// axis, position by position; what a procedural memory keeps, in the order of its own (procedural/image.h).
template <class Rows, class Recurrent, class Past>
void in_file_order(const StateImage& image, Rows&& rows, Recurrent&& recurrent, Past&& past) {
  for (std::size_t layer = 0; layer < image.runs.size(); ++layer)
    for (const PosRange& run : image.runs[layer])
      for (const bool key : {true, false})
        if (key || !keeps_rows_once(image.spec, image.spec.layers[layer])) rows(layer, run, key);
  for (const Pos position : image.recurrent)
    for (std::size_t i = 0; i < image.spec.recurrent.size(); ++i) recurrent(position, i);
  if (image.past) past();
}

// Hands over the bytes of a state's tensors in file order, each in one or several parts; end(bytes) behind
// every tensor. State: const or not, and so are the bytes.
template <class State, class Part, class End>
void payload_in_order(State& state, const StateImage& image, Part&& part, End&& end) {
  in_file_order(
      image,
      [&](std::size_t layer, const PosRange& run, bool key) {
        const int index = static_cast<int>(layer);
        const std::vector<LayerRows::Run> pieces = state.layer_rows(index).runs(run.first, run.last);
        std::uint64_t bytes = 0;
        for (int head = 0; head < image.spec.layers[layer].kv_heads; ++head)
          for (const LayerRows::Run& piece : pieces) {
            const auto rows = state.rows_of_head(index, head, key ? KvPart::keys : KvPart::values,
                                                 {piece.first, piece.last});
            bytes += rows.bytes();
            in_dense_parts(rows, part);
          }
        end(bytes);
      },
      [&](Pos position, std::size_t i) {
        const auto bytes = state.recurrent().bytes_at(position, i);
        part(bytes);
        end(bytes.size());
      },
      [&] {
        for (const auto bytes : state.past()->payload()) {
          part(bytes);
          end(bytes.size());
        }
      });
}

// The tensors of a state in file order, without the logits and without offsets.
std::vector<SnapshotTensor> state_tensors(const StateImage& image);

// Sets the offsets; returns the length of the payload.
std::uint64_t place(std::vector<SnapshotTensor>& tensors);

// What a file has before its payload, and what that says.
struct SnapshotStart {
  SnapshotHeader header;
  std::vector<std::byte> front;

  std::uint64_t chunks() const { return (header.payload_bytes + kChunk - 1) / kChunk; }
  std::uint64_t file_bytes() const { return front.size() + header.payload_bytes + chunks() * 4 + kTrailer; }
};

// `path` is for the message when the header is too long.
SnapshotStart start_of(const std::string& path, const KvState& state, const SnapshotExtras& extras);
// Throws Error(bad_format): not a snapshot, or its header is damaged. Sizes and offsets are not checked.
SnapshotStart read_start(ByteStream& file, const std::string& path);
// The payload in file order, in parts that are worth a write of their own.
void write_payload(const KvState& state, const SnapshotHeader& header, const FileSink& sink);
// What stands behind the payload: the sums of its chunks, the digest, the length.
std::vector<std::byte> end_of(const SnapshotStart& start, const std::vector<std::uint32_t>& sums);

}  // namespace kvtide::snapshot_format
