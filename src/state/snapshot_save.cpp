// snapshot_save.cpp: a state into a file. Sums are made of each part right before it is written, while it is
// in the processor's caches: a pass of its own over the payload would cost a tenth of the save.
#include "base/checksum.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "state/snapshot_format.h"

namespace kvtide {
namespace snapshot_format {
namespace {

template <class T>
void put(std::vector<std::byte>& out, const T& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

}  // namespace

SnapshotStart start_of(const std::string& path, const KvState& state, const SnapshotExtras& extras) {
  SnapshotHeader header;
  header.image = state.image();
  header.extras = extras;
  header.tensors = state_tensors(header.image);
  if (!extras.logits.empty())
    header.tensors.push_back({"logits",
                              DType::f32,
                              {static_cast<std::int64_t>(extras.logits.size())},
                              header.image.position,
                              0,
                              extras.logits.size() * 4});
  header.payload_bytes = place(header.tensors);
  const std::string json = write_header(header);
  if (json.size() > kLargestHeader)
    throw Error(ErrorCode::invalid_argument,
                cat(path, ": the state's header would be ", json.size(), " bytes"));

  std::vector<std::byte> front;
  const auto text = std::as_bytes(std::span(json));
  front.insert(front.end(), reinterpret_cast<const std::byte*>(kMagic),
               reinterpret_cast<const std::byte*>(kMagic) + 8);
  put(front, kVersion);
  put(front, crc32c(text));
  put(front, static_cast<std::uint64_t>(json.size()));
  front.insert(front.end(), text.begin(), text.end());
  front.resize(aligned(front.size()));
  return {std::move(header), std::move(front)};
}

void write_payload(const KvState& state, const SnapshotHeader& header, const FileSink& sink) {
  static constexpr std::byte kZeros[kAlign] = {};
  const auto add = [&](std::span<const std::byte> bytes) {
    in_parts<std::span<const std::byte>>(bytes, sink);
  };
  const auto pad = [&](std::uint64_t bytes) { add(std::span(kZeros).first(aligned(bytes) - bytes)); };
  payload_in_order(state, header.image, add, pad);
  const auto logits = std::as_bytes(std::span(header.extras.logits));
  add(logits);
  pad(logits.size());
}

std::vector<std::byte> end_of(const SnapshotStart& start, const std::vector<std::uint32_t>& sums) {
  Sha256 digest;
  digest.add(start.front);
  digest.add(bytes_of(sums));
  const auto hash = digest.finish();
  const auto table = bytes_of(sums);
  std::vector<std::byte> end(table.begin(), table.end());
  end.insert(end.end(), hash.begin(), hash.end());
  put(end, start.file_bytes());
  end.insert(end.end(), reinterpret_cast<const std::byte*>(kEnd),
             reinterpret_cast<const std::byte*>(kEnd) + 8);
  return end;
}

}  // namespace snapshot_format

using namespace snapshot_format;

void save_snapshot(FileSystem& files, const std::string& path, const KvState& state,
                   const SnapshotExtras& extras, Flush flush) {
  const SnapshotStart start = start_of(path, state, extras);
  save_file_in_parts(
      files, path,
      [&](const FileSink& write) {
        write(start.front);
        ChunkSums sums;
        write_payload(state, start.header, [&](std::span<const std::byte> bytes) {
          sums.add(bytes);
          write(bytes);
        });
        write(end_of(start, sums.finish()));
      },
      flush);
}

}  // namespace kvtide
