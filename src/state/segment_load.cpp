// segment_load.cpp: the snapshot that a chain of segments makes, read as if it were a file.
#include <algorithm>
#include <memory>

#include "base/text.h"
#include "kvtide/error.h"
#include "state/segment.h"
#include "state/segment_format.h"

namespace kvtide {
namespace {

using namespace segment_format;

// Bytes of one file. Those of the same file ascend, because copies do.
struct Range {
  std::size_t file = 0;
  std::uint64_t at = 0, bytes = 0;
};

// `before`: what the segment copies from. `at`: where the file's own bytes begin.
std::vector<Range> resolved(const Head& head, std::size_t file, std::uint64_t at,
                            const std::vector<Range>& before, const std::string& path) {
  std::vector<Range> out;
  std::size_t range = 0;
  std::uint64_t begin = 0;  // of that range, in the snapshot before
  for (const Part& part : head.parts) {
    if (!part.from) {
      out.push_back({file, at, part.bytes});
      at += part.bytes;
      continue;
    }
    for (std::uint64_t from = *part.from, left = part.bytes; left > 0;) {
      while (range < before.size() && begin + before[range].bytes <= from) begin += before[range++].bytes;
      if (range == before.size())
        throw Error(ErrorCode::bad_format,
                    cat(path, ": not a sound segment: it copies beyond the one before"));
      const std::uint64_t skipped = from - begin, bytes = std::min(left, before[range].bytes - skipped);
      out.push_back({before[range].file, before[range].at + skipped, bytes});
      from += bytes;
      left -= bytes;
    }
  }
  return out;
}

class SegmentReader final : public ByteStream {
 public:
  SegmentReader(FileSystem& files, const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      files_.push_back({std::make_unique<FileReader>(files, path), 0});
      FileReader& file = *files_.back().reader;
      const Head head = read_head(file, path);
      if (head.source.has_value() == (files_.size() == 1))
        throw Error(ErrorCode::bad_format,
                    cat(path, ": not a sound segment: ",
                        head.source ? "it goes on from another one"
                                    : "it holds everything, and others stand before it"));
      std::uint64_t own = file.size();
      for (const Part& part : head.parts) own -= part.from ? 0 : part.bytes;
      files_.back().at = own;
      ranges_ = resolved(head, files_.size() - 1, own, ranges_, path);
      size_ = head.bytes;
    }
  }

  std::uint64_t size() const override { return size_; }

  void read(std::span<std::byte> into) override {
    while (!into.empty()) {
      if (next_ == ranges_.size()) throw Error(ErrorCode::io, "a snapshot in segments: it ends early");
      Range& range = ranges_[next_];
      Open& file = files_[range.file];
      skip(file, range.at);
      const auto part =
          into.first(static_cast<std::size_t>(std::min<std::uint64_t>(range.bytes, into.size())));
      file.reader->read(part);
      file.at += part.size();
      range.at += part.size();
      range.bytes -= part.size();
      into = into.subspan(part.size());
      if (range.bytes == 0) ++next_;
    }
  }

 private:
  struct Open {
    std::unique_ptr<FileReader> reader;
    std::uint64_t at = 0;  // what is read next
  };

  // Over what later segments replaced: headers and sums.
  static void skip(Open& file, std::uint64_t to) {
    std::byte scratch[4096];
    while (file.at < to) {
      const auto part =
          std::span(scratch).first(static_cast<std::size_t>(std::min<std::uint64_t>(to - file.at, 4096)));
      file.reader->read(part);
      file.at += part.size();
    }
  }

  std::vector<Open> files_;
  std::vector<Range> ranges_;
  std::size_t next_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace

Snapshot load_segments(FileSystem& files, const std::vector<std::string>& paths) {
  if (paths.empty()) throw Error(ErrorCode::invalid_argument, "a snapshot in segments needs at least one");
  SegmentReader file(files, paths);
  return load_snapshot(file, paths.back());
}

}  // namespace kvtide
