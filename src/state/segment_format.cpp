#include "state/segment_format.h"

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "base/json/json.h"
#include "base/json/json_fields.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide::segment_format {
namespace {

constexpr char kSegmentMagic[9] = "KVTSEG2\n";
constexpr std::uint64_t kSegmentPrefix = 16;  // magic, length of the head
constexpr std::int64_t kMostBytes = std::int64_t{1} << 60;
// Pieces begin at multiples of so many rows. The newest rows are in short ones: a client that says an answer again in other
// tokens changes the last of them. A window loses its oldest rows after every turn, and a part of its first piece with them.
constexpr std::int64_t kShort = 32, kWindow = 64, kLong = 256;

[[noreturn]] void damaged(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::bad_format, cat(path, ": not a sound segment: ", why));
}

std::vector<std::uint32_t> sums_in(const std::string& path, const std::string& text) {
  if (text.size() % 8 != 0) damaged(path, "its sums are cut");
  std::vector<std::uint32_t> sums(text.size() / 8);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) damaged(path, "its sums are no hexadecimal digits");
    // Little endian, as the bytes of the numbers: the first digit of a pair is the high one.
    sums[i / 8] |= static_cast<std::uint32_t>(digit) << (i % 8 / 2 * 8 + (i % 2 == 0 ? 4 : 0));
  }
  return sums;
}

void check_parts(const std::string& path, const Head& head, std::uint64_t held) {
  std::uint64_t made = 0, literal = 0, copied_to = 0;
  for (const Part& part : head.parts) {
    if (part.from) {
      if (!head.source || *part.from < copied_to) damaged(path, "it copies what it cannot");
      copied_to = *part.from + part.bytes;
    } else {
      literal += part.bytes;
    }
    made += part.bytes;
    if (made > head.bytes) damaged(path, "its parts make more than it says");
  }
  if (made != head.bytes || literal != held) damaged(path, "its parts are not as long as it says");
}

std::size_t layer_of(const std::string& name) {
  std::size_t layer = 0;
  for (std::size_t i = std::strlen("layers."); i < name.size() && name[i] >= '0' && name[i] <= '9'; ++i)
    layer = std::min<std::size_t>(layer * 10 + static_cast<std::size_t>(name[i] - '0'), 1u << 20);
  return layer;
}

class Pieces {
 public:
  Pieces(std::uint64_t front, std::size_t most) : front_(front), most_(most) {}

  void add(Piece piece) {
    if (out_.size() == most_) throw Error(ErrorCode::bad_format, "a snapshot of other pieces than its sums");
    piece.at += front_;
    out_.push_back(piece);
  }

  void add_rows(const SnapshotTensor& tensor, std::size_t index, std::int64_t usual) {
    const std::int64_t heads = tensor.shape[0], rows = tensor.shape[1];
    if (heads < 1 || rows < 1 || heads > (1 << 20) || rows > kMostBytes >> 20 || tensor.first < 0 ||
        tensor.first > kMostBytes || tensor.bytes % static_cast<std::uint64_t>(heads * rows) != 0)
      throw Error(ErrorCode::bad_format, cat("the rows of ", quoted(tensor.name), " cannot be"));
    const std::uint64_t row = tensor.bytes / static_cast<std::uint64_t>(heads * rows);
    const Pos last = tensor.first + rows, newest = (last - kLong) / usual * usual;
    std::uint64_t at = tensor.offset;
    for (std::int64_t head = 0; head < heads; ++head)
      for (Pos first = tensor.first; first < last;) {
        const std::int64_t every = first < newest ? usual : kShort;
        const Pos next = std::min(last, (first / every + 1) * every);
        const std::uint64_t bytes = static_cast<std::uint64_t>(next - first) * row;
        add({index, head, first, next - first, at, bytes});
        at += bytes;
        first = next;
      }
  }

  std::vector<Piece> take() { return std::move(out_); }

 private:
  std::uint64_t front_;
  std::size_t most_;
  std::vector<Piece> out_;
};

}  // namespace

std::vector<std::byte> written(const Head& head) {
  Json json = Json::object(), make = Json::array();
  for (const Part& part : head.parts) {
    Json one = Json::array();
    if (part.from) one.push(Json(*part.from));
    make.push(std::move(one.push(Json(part.bytes))));
  }
  json.set("bytes", head.bytes).set("source", head.source).set("make", std::move(make));
  json.set("sums", hex(snapshot_format::bytes_of(head.sums)));
  const std::string text = json.text(JsonForm::line);
  const std::uint64_t length = text.size();
  std::vector<std::byte> out(kSegmentPrefix + text.size());
  std::memcpy(out.data(), kSegmentMagic, 8);
  std::memcpy(out.data() + 8, &length, 8);
  std::memcpy(out.data() + kSegmentPrefix, text.data(), text.size());
  return out;
}

Head read_head(ByteStream& file, const std::string& path) {
  std::byte prefix[kSegmentPrefix];
  if (file.size() < kSegmentPrefix) damaged(path, cat("it has only ", file.size(), " bytes"));
  file.read(prefix);
  std::uint64_t length = 0;
  std::memcpy(&length, prefix + 8, 8);
  if (std::memcmp(prefix, kSegmentMagic, 8) != 0)
    damaged(path, "it does not begin with the magic of a segment");
  if (length > snapshot_format::kLargestHeader || length > file.size() - kSegmentPrefix)
    damaged(path, cat("its head of ", length, " bytes does not fit the file"));
  std::string text(length, '\0');
  file.read(std::as_writable_bytes(std::span(text)));
  const JsonValue parsed = JsonValue::parse(text, path);
  const JsonFields json(parsed, path);
  Head head;
  head.bytes = static_cast<std::uint64_t>(json.count("bytes", 0, kMostBytes));
  head.source = json.text("source");
  for (const auto& part : json.numbers<std::vector<std::vector<std::int64_t>>>("make", 0, kMostBytes)) {
    if (part.empty() || part.size() > 2) json.wrong("make", "lists of [bytes] and [from, bytes]");
    Part one{std::nullopt, static_cast<std::uint64_t>(part.back())};
    if (part.size() == 2) one.from = static_cast<std::uint64_t>(part[0]);
    head.parts.push_back(one);
  }
  head.sums = sums_in(path, json.text("sums").value_or(""));
  check_parts(path, head, file.size() - kSegmentPrefix - length);
  return head;
}

bool holds_rows(const SnapshotTensor& tensor) {
  return tensor.name.starts_with("layers.") && tensor.shape.size() == 3;
}

std::vector<Piece> pieces_of(const snapshot_format::SnapshotStart& start, std::size_t most) {
  const std::vector<LayerSpec>& layers = start.header.image.spec.layers;
  Pieces pieces(start.front.size(), most);
  for (std::size_t i = 0; i < start.header.tensors.size(); ++i) {
    const SnapshotTensor& tensor = start.header.tensors[i];
    if (!holds_rows(tensor)) {
      pieces.add({i, 0, tensor.first, 1, tensor.offset, tensor.bytes});
      continue;
    }
    const std::size_t layer = layer_of(tensor.name);
    pieces.add_rows(tensor, i, layer < layers.size() && layers[layer].window ? kWindow : kLong);
  }
  return pieces.take();
}

}  // namespace kvtide::segment_format
