// segment_save.cpp: a state into a segment. The rows are passed over twice: for the sums, which tell what is new, and to write
// that. The second time most of them are not touched.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/checksum.h"
#include "kvtide/error.h"
#include "state/segment.h"
#include "state/segment_format.h"

namespace kvtide {
namespace {

using namespace segment_format;
using snapshot_format::SnapshotStart;

// Bytes of the new snapshot that may be those of the one before: they are when the sum is theirs.
struct Copy {
  std::uint64_t at = 0, from = 0, bytes = 0;
  std::uint32_t sum = 0;
};

// A snapshot whose first bytes are the next ones of a segment.
class Inside final : public ByteStream {
 public:
  Inside(ByteStream& segment, std::uint64_t bytes) : segment_(segment), bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_; }
  void read(std::span<std::byte> into) override { segment_.read(into); }

 private:
  ByteStream& segment_;
  std::uint64_t bytes_;
};

// Finds pieces of the snapshot before in the new one.
class Places {
 public:
  explicit Places(const SnapshotStart& start) : start_(start) {
    for (std::size_t i = 0; i < start.header.tensors.size(); ++i)
      by_name_[start.header.tensors[i].name].push_back(i);
  }

  std::optional<std::uint64_t> find(const SnapshotTensor& tensor, const Piece& piece) const {
    const auto found = by_name_.find(tensor.name);
    if (found == by_name_.end()) return std::nullopt;
    for (const std::size_t i : found->second) {
      const SnapshotTensor& ours = start_.header.tensors[i];
      if (holds_rows(ours) != holds_rows(tensor)) continue;
      if (!holds_rows(ours)) {
        if (ours.first == piece.first && ours.bytes == piece.bytes) return start_.front.size() + ours.offset;
        continue;
      }
      const std::int64_t rows = ours.shape[1], before = piece.first - ours.first;
      const std::uint64_t row = ours.bytes / static_cast<std::uint64_t>(ours.shape[0] * rows);
      if (piece.head >= ours.shape[0] || before < 0 || piece.rows > rows - before ||
          piece.bytes != static_cast<std::uint64_t>(piece.rows) * row)
        continue;
      return start_.front.size() + ours.offset + static_cast<std::uint64_t>(piece.head * rows + before) * row;
    }
    return std::nullopt;
  }

 private:
  const SnapshotStart& start_;
  std::unordered_map<std::string, std::vector<std::size_t>> by_name_;
};

// What of the new snapshot may be copied from the segment at `path`, ascending. Nothing, when it cannot be read.
std::vector<Copy> candidates(FileSystem& files, const std::string& path, const SnapshotStart& start) {
  std::vector<Copy> out;
  try {
    FileReader file(files, path);
    const Head head = read_head(file, path);
    if (head.parts.empty() || head.parts[0].from) return {};
    Inside snapshot(file, head.bytes);
    const SnapshotStart before = snapshot_format::read_start(snapshot, path);
    if (before.front.size() > head.parts[0].bytes) return {};
    const std::vector<Piece> pieces = pieces_of(before, head.sums.size());
    if (pieces.size() != head.sums.size()) return {};
    const Places places(start);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Piece& piece = pieces[i];
      if (piece.bytes == 0 || piece.bytes > head.bytes || piece.at > head.bytes - piece.bytes) continue;
      const auto at = places.find(before.header.tensors[piece.tensor], piece);
      if (at) out.push_back({*at, piece.at, piece.bytes, head.sums[i]});
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::out_of_memory) throw;
    return {};
  }
  std::sort(out.begin(), out.end(), [](const Copy& a, const Copy& b) { return a.at < b.at; });
  std::uint64_t end = 0;
  std::erase_if(out, [&](const Copy& copy) {  // a damaged header may name the same rows twice
    if (copy.at < end) return true;
    end = copy.at + copy.bytes;
    return false;
  });
  return out;
}

// CRC-32C of ranges of a payload that comes part by part. Each byte is summed once, between neighbouring cuts.
class RangeSums {
 public:
  // `cuts`: where ranges begin or end, in any order; the payload begins at the first one.
  explicit RangeSums(std::vector<std::uint64_t> cuts) : cuts_(std::move(cuts)) {
    std::sort(cuts_.begin(), cuts_.end());
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
    at_ = cuts_.front();
    sums_.reserve(cuts_.size());
  }

  void add(std::span<const std::byte> bytes) {
    while (!bytes.empty() && sums_.size() + 1 < cuts_.size()) {
      const std::uint64_t until = cuts_[sums_.size() + 1];
      const auto part =
          bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(until - at_, bytes.size())));
      sum_ = crc32c(part, sum_);
      at_ += part.size();
      bytes = bytes.subspan(part.size());
      if (at_ < until) continue;
      sums_.push_back(sum_);
      sum_ = 0;
    }
  }

  // Of a range that begins and ends with cuts, when its bytes have come. Range: has `at` and `bytes`.
  template <class Range>
  std::uint32_t of(const Range& range) const {
    std::uint32_t sum = 0;
    const std::uint64_t last = range.at + range.bytes;
    auto i = static_cast<std::size_t>(std::lower_bound(cuts_.begin(), cuts_.end(), range.at) - cuts_.begin());
    for (; cuts_[i] < last; ++i) sum = crc32c_joined(sum, sums_[i], cuts_[i + 1] - cuts_[i]);
    return sum;
  }

 private:
  std::vector<std::uint64_t> cuts_;
  std::uint64_t at_ = 0;
  std::uint32_t sum_ = 0;            // since the last cut
  std::vector<std::uint32_t> sums_;  // between cuts i and i + 1
};

// The parts of a payload that a snapshot has sums of.
struct Chunk {
  std::uint64_t at = 0, bytes = 0;
};
std::vector<Chunk> chunks_of(const SnapshotStart& start) {
  const std::uint64_t begin = start.front.size(), end = begin + start.header.payload_bytes;
  std::vector<Chunk> out;
  for (std::uint64_t at = begin; at < end; at += snapshot_format::kChunk)
    out.push_back({at, std::min(snapshot_format::kChunk, end - at)});
  return out;
}

// Sums of a payload in the making: of its pieces, of what may be copied, which are mostly the same ranges, and of its chunks.
RangeSums sums_of(const KvState& state, const SnapshotStart& start, const std::vector<Piece>& pieces,
                  const std::vector<Copy>& may_be, const std::vector<Chunk>& chunks) {
  std::vector<std::uint64_t> cuts{start.front.size()};
  const auto cut = [&](const auto& ranges) {
    for (const auto& range : ranges) cuts.insert(cuts.end(), {range.at, range.at + range.bytes});
  };
  cut(pieces);
  cut(may_be);
  cut(chunks);
  RangeSums sums(std::move(cuts));
  snapshot_format::write_payload(state, start.header,
                                 [&](std::span<const std::byte> bytes) { sums.add(bytes); });
  return sums;
}

template <class Range>
std::vector<std::uint32_t> all_of(const RangeSums& sums, const std::vector<Range>& ranges) {
  std::vector<std::uint32_t> out;
  for (const Range& range : ranges) out.push_back(sums.of(range));
  return out;
}

// Those that are the same. They ascend on both sides and lie apart, so that a reader never has to go back.
std::vector<Copy> same(const std::vector<Copy>& candidates, const RangeSums& sums) {
  std::vector<Copy> out;
  std::uint64_t at = 0, from = 0;
  for (const Copy& copy : candidates) {
    if (copy.at < at || copy.from < from || sums.of(copy) != copy.sum) continue;
    out.push_back(copy);
    at = copy.at + copy.bytes;
    from = copy.from + copy.bytes;
  }
  return out;
}

std::vector<Part> parts_of(const std::vector<Copy>& copies, std::uint64_t bytes) {
  std::vector<Part> parts;
  std::uint64_t at = 0;
  const auto add = [&](std::optional<std::uint64_t> from, std::uint64_t size) {
    if (size == 0) return;
    Part* last = parts.empty() ? nullptr : &parts.back();
    if (last != nullptr && from && last->from && *last->from + last->bytes == *from)
      last->bytes += size;
    else
      parts.push_back({from, size});
  };
  for (const Copy& copy : copies) {
    add(std::nullopt, copy.at - at);
    add(copy.from, copy.bytes);
    at = copy.at + copy.bytes;
  }
  add(std::nullopt, bytes - at);
  return parts;
}

// Hands on what of a file that comes part by part no copy has.
class NewBytes {
 public:
  NewBytes(const std::vector<Copy>& copies, const FileSink& write) : copies_(copies), write_(write) {}

  void add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::uint64_t begin = next_ < copies_.size() ? copies_[next_].at : ~std::uint64_t{0};
      const bool copied = at_ >= begin;
      const std::uint64_t until = copied ? begin + copies_[next_].bytes : begin;
      const auto part =
          bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(until - at_, bytes.size())));
      if (!copied) write_(part);
      at_ += part.size();
      bytes = bytes.subspan(part.size());
      if (copied && at_ == until) ++next_;
    }
  }

 private:
  const std::vector<Copy>& copies_;
  const FileSink& write_;
  std::size_t next_ = 0;
  std::uint64_t at_ = 0;
};

}  // namespace

void save_segment(FileSystem& files, const std::string& path, const KvState& state,
                  const SnapshotExtras& extras, const std::optional<SegmentBefore>& before, Flush flush) {
  const SnapshotStart start = snapshot_format::start_of(path, state, extras);
  const std::vector<Piece> pieces = pieces_of(start, ~std::size_t{0});
  const std::vector<Copy> may_be = before ? candidates(files, before->path, start) : std::vector<Copy>();
  const std::vector<Chunk> chunks = chunks_of(start);
  const RangeSums sums = sums_of(state, start, pieces, may_be, chunks);
  const std::vector<Copy> copies = same(may_be, sums);
  const std::vector<std::byte> end = snapshot_format::end_of(start, all_of(sums, chunks));
  Head head{start.file_bytes(), std::nullopt, parts_of(copies, start.file_bytes()), all_of(sums, pieces)};
  if (!copies.empty()) head.source = before->name;
  save_file_in_parts(
      files, path,
      [&](const FileSink& write) {
        write(written(head));
        NewBytes fresh(copies, write);
        fresh.add(start.front);
        snapshot_format::write_payload(state, start.header,
                                       [&](std::span<const std::byte> bytes) { fresh.add(bytes); });
        fresh.add(end);
      },
      flush);
}

}  // namespace kvtide
