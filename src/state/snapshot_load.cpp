// snapshot_load.cpp: a file into fresh memory, checked as a whole before anybody sees it.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checksum.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "state/snapshot_format.h"

namespace kvtide {
namespace {

using namespace snapshot_format;

constexpr Pos kFarthestPosition = Pos{1} << 40;
constexpr std::uint64_t kPagesAnyway = std::uint64_t{32} << 20;
constexpr std::uint64_t kPagesPerByte = 64;

template <class T>
T get(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

[[noreturn]] void damaged(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::bad_format, cat(path, ": not a sound snapshot: ", why));
}

// The runs that the header's row tensors describe. Also checks that sizes, order and offsets are the ones a
// writer makes.
void read_runs(SnapshotHeader& header, std::uint64_t logits) {
  StateImage& image = header.image;
  const auto refuse = [](const std::string& why) { throw Error(ErrorCode::bad_format, why); };
  check(image.spec);
  if (image.position < 0 || image.position > kFarthestPosition)
    refuse(cat("position ", image.position, " is out of range"));
  image.runs.assign(image.spec.layers.size(), {});
  std::size_t layer = 0;
  std::uint64_t pages = 0;
  for (std::size_t i = 0; i < header.tensors.size();) {
    const auto& tensor = header.tensors[i];
    if (tensor.name.starts_with("recurrent.") || tensor.name.starts_with("procedural.") ||
        tensor.name == "logits")
      break;
    if (tensor.shape.size() != 3) refuse(cat("tensor ", quoted(tensor.name), " must have three dimensions"));
    while (layer < image.runs.size() && tensor.name != cat("layers.", layer, ".k")) ++layer;
    if (layer == image.runs.size()) refuse(cat("an unknown tensor ", quoted(tensor.name)));
    const std::int64_t rows = tensor.shape[1];
    if (tensor.first < 0 || rows < 1 || rows > image.position - tensor.first)
      refuse(cat("tensor ", quoted(tensor.name), " has rows beyond the position"));
    const RowFormat format = row_format(image.spec, image.spec.layers[layer]);
    // Bounded by the length of the file before anything is multiplied by it.
    const std::int64_t row =
        format.kv_heads * (format.key_bytes + (format.values_in_keys ? 0 : format.value_bytes));
    if (static_cast<std::uint64_t>(rows) > header.payload_bytes / static_cast<std::uint64_t>(row))
      refuse(cat("tensor ", quoted(tensor.name), " is longer than the payload"));
    image.runs[layer].push_back({tensor.first, tensor.first + rows});
    i += format.values_in_keys ? 1 : 2;
    pages += static_cast<std::uint64_t>(page_bytes(format, tensor.first, tensor.first + rows));
  }
  // Rows begin on pages of their own for every head and run; a header that asks for far more of them than
  // there are bytes is not the work of a model.
  if (pages > kPagesAnyway && pages / kPagesPerByte > header.payload_bytes)
    refuse(
        cat("its ", header.payload_bytes, " bytes of rows are scattered over ", pages, " bytes of memory"));
  for (const auto& tensor : header.tensors)
    if (tensor.name.starts_with("recurrent.") &&
        (image.recurrent.empty() || image.recurrent.back() != tensor.first))
      image.recurrent.push_back(tensor.first);
  if (image.past.has_value() != image.spec.procedural.has_value())
    refuse("the blocks of a procedural memory and its spec come together");
  if (image.past)
    check(*image.past, memory_spec(image.spec), image.position, whole_layer(image.spec.layers).head_dim);
  auto expected = state_tensors(image);
  if (logits > 0)
    expected.push_back(
        {"logits", DType::f32, {static_cast<std::int64_t>(logits)}, image.position, 0, logits * 4});
  const std::uint64_t payload = place(expected);
  const auto same = [](const SnapshotTensor& a, const SnapshotTensor& b) {
    return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.first == b.first &&
           a.offset == b.offset && a.bytes == b.bytes;
  };
  if (!std::equal(expected.begin(), expected.end(), header.tensors.begin(), header.tensors.end(), same) ||
      payload != header.payload_bytes)
    refuse("the tensors do not follow from the spec");
}

std::uint64_t logits_length(const SnapshotHeader& header) {
  if (header.tensors.empty() || header.tensors.back().name != "logits") return 0;
  const auto& shape = header.tensors.back().shape;
  if (shape.size() != 1 || shape[0] < 1 || shape[0] > (std::int64_t{1} << 26))
    throw Error(ErrorCode::bad_format, "the tensor 'logits' must have one dimension");
  return static_cast<std::uint64_t>(shape[0]);
}

void check_identity(const std::string& path, const SnapshotExtras& extras,
                    const std::map<std::string, std::string>& expected) {
  for (const auto& [key, value] : expected) {
    const auto found = extras.identity.find(key);
    const std::string theirs = found == extras.identity.end() ? "nothing" : quoted(found->second);
    if (found == extras.identity.end() || found->second != value)
      throw Error(ErrorCode::invalid_argument, cat(path, ": the snapshot belongs to another ", key,
                                                   ": it says ", theirs, ", this one is ", quoted(value)));
  }
}

// Numbers that can be, and rows that stand for every token that was sealed.
void check_past(const ProceduralMemory& past) {
  past.check_payload();
  try {
    past.audit();
  } catch (const Error& error) {
    throw Error(ErrorCode::bad_format, error.message());
  }
}

// The prefix of the file and its header, whose checksum holds, up to where the payload begins.
std::vector<std::byte> read_front(ByteStream& file, const std::string& path) {
  if (file.size() < kPrefix + kTrailer) damaged(path, cat("it has only ", file.size(), " bytes"));
  std::vector<std::byte> front(kPrefix);
  file.read(front);
  if (std::memcmp(front.data(), kMagic, 8) != 0)
    damaged(path, "it does not begin with the magic of a snapshot");
  const auto version = get<std::uint32_t>(front.data() + 8);
  if (version != kVersion)
    throw Error(ErrorCode::unsupported,
                cat(path, ": snapshot version ", version, "; this program reads version ", kVersion));
  const auto length = get<std::uint64_t>(front.data() + 16);
  if (length > kLargestHeader || aligned(kPrefix + length) + kTrailer > file.size())
    damaged(path, cat("its header of ", length, " bytes does not fit the file"));
  front.resize(aligned(kPrefix + length));
  file.read(std::span(front).subspan(kPrefix));
  const std::span<const std::byte> json = std::span(front).subspan(kPrefix, length);
  if (crc32c(json) != get<std::uint32_t>(front.data() + 12)) damaged(path, "its header is damaged");
  return front;
}

std::string_view json_in(std::span<const std::byte> front) {
  const auto length = get<std::uint64_t>(front.data() + 16);
  return {reinterpret_cast<const char*>(front.data()) + kPrefix, length};
}

// The rows and logits of a snapshot that has room for them; gives the checksums of what it read.
std::vector<std::uint32_t> read_payload(ByteStream& file, const StateImage& image, std::uint64_t vocabulary,
                                        Snapshot& snapshot) {
  ChunkSums sums;
  std::byte gap[kAlign];
  const auto read = [&](std::span<std::byte> bytes) {
    in_parts<std::span<std::byte>>(bytes, [&](std::span<std::byte> part) {
      file.read(part);
      sums.add(part);
    });
  };
  const auto skip = [&](std::uint64_t bytes) { read(std::span(gap).first(aligned(bytes) - bytes)); };
  payload_in_order(snapshot.state, image, read, skip);
  if (vocabulary > 0) {
    snapshot.extras.logits.resize(vocabulary);
    read(std::as_writable_bytes(std::span(snapshot.extras.logits)));
    skip(vocabulary * 4);
  }
  return sums.finish();
}

// What stands behind the payload: its checksums, the digest, the length.
void check_end(ByteStream& file, const std::string& path, std::span<const std::byte> front,
               const std::vector<std::uint32_t>& table) {
  std::vector<std::uint32_t> stored(table.size());
  file.read(std::as_writable_bytes(std::span(stored)));
  std::byte trailer[kTrailer];
  file.read(trailer);
  for (std::size_t i = 0; i < table.size(); ++i)
    if (table[i] != stored[i]) damaged(path, cat("chunk ", i, " of its payload is damaged"));
  Sha256 digest;
  digest.add(front);
  digest.add(bytes_of(stored));
  if (const auto hash = digest.finish(); std::memcmp(hash.data(), trailer, 32) != 0)
    damaged(path, "its digest does not match");
  if (get<std::uint64_t>(trailer + 32) != file.size() || std::memcmp(trailer + 40, kEnd, 8) != 0)
    damaged(path, "its end is damaged");
}

// payload_bytes may be any number, so that the sum may wrap: it is then not the length of a file with such a payload.
void check_length(const ByteStream& file, const std::string& path, const SnapshotStart& start) {
  if (start.header.payload_bytes > file.size() || start.file_bytes() != file.size())
    damaged(path, cat("its length of ", file.size(), " bytes is not what its header says"));
}

// Contradictions inside the header are the file's fault, and every message names the file.
[[noreturn]] void name_file(const std::string& path, const Error& error) {
  if (error.message().starts_with(path + ": ")) throw Error(error);
  const bool format = error.code() == ErrorCode::invalid_argument || error.code() == ErrorCode::bad_format;
  if (format) damaged(path, error.message());
  throw Error(error.code(), cat(path, ": ", error.message()));
}

}  // namespace

SnapshotStart snapshot_format::read_start(ByteStream& file, const std::string& path) {
  std::vector<std::byte> front = read_front(file, path);
  try {
    SnapshotHeader header = read_header(json_in(front));
    return {std::move(header), std::move(front)};
  } catch (const Error& error) {
    name_file(path, error);
  }
}

SnapshotFront read_snapshot_front(FileSystem& files, const std::string& path) {
  FileReader file(files, path);
  SnapshotStart start = read_start(file, path);
  check_length(file, path, start);
  return {std::move(start.header.image), std::move(start.header.extras), file.size()};
}

Snapshot load_snapshot(FileSystem& files, const std::string& path,
                       const std::map<std::string, std::string>& expected) {
  FileReader file(files, path);
  return load_snapshot(file, path, expected);
}

Snapshot load_snapshot(ByteStream& file, const std::string& path,
                       const std::map<std::string, std::string>& expected) {
  SnapshotStart start = read_start(file, path);
  try {
    SnapshotHeader& header = start.header;
    check_identity(path, header.extras, expected);
    const std::uint64_t vocabulary = logits_length(header);
    check_length(file, path, start);
    read_runs(header, vocabulary);

    // The file is as long as its payload claims, so what is reserved here is bounded by what is there.
    Snapshot snapshot{KvState(header.image), std::move(header.extras), header.minor};
    check_end(file, path, start.front, read_payload(file, header.image, vocabulary, snapshot));
    if (snapshot.state.past() != nullptr) check_past(*snapshot.state.past());
    return snapshot;
  } catch (const Error& error) {
    name_file(path, error);
  }
}

}  // namespace kvtide
