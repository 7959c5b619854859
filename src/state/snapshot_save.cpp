// snapshot_save.cpp: a state into a file. Sums are made of each part right before it is written, while it is
// in the processor's caches: a pass of its own over the payload would cost a tenth of the save.
#include "base/checksum.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "state/snapshot_format.h"

namespace kvtide {
namespace {

using namespace snapshot_format;

template <class T>
void put(std::vector<std::byte>& out, const T& value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof value);
}

// Hands over the payload in file order, in parts that are worth a write of their own.
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

}  // namespace

void save_snapshot(FileSystem& files, const std::string& path, const KvState& state,
                   const SnapshotExtras& extras, Flush flush) {
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

  save_file_in_parts(
      files, path,
      [&](const FileSink& write) {
        write(front);
        ChunkSums sums;
        write_payload(state, header, [&](std::span<const std::byte> bytes) {
          sums.add(bytes);
          write(bytes);
        });
        const std::vector<std::uint32_t>& table = sums.finish();
        Sha256 digest;
        digest.add(front);
        digest.add(bytes_of(table));
        const auto hash = digest.finish();
        std::vector<std::byte> trailer(hash.begin(), hash.end());
        put(trailer,
            static_cast<std::uint64_t>(front.size() + header.payload_bytes + table.size() * 4 + kTrailer));
        trailer.insert(trailer.end(), reinterpret_cast<const std::byte*>(kEnd),
                       reinterpret_cast<const std::byte*>(kEnd) + 8);
        write(bytes_of(table));
        write(trailer);
      },
      flush);
}

}  // namespace kvtide
