#include "formats/packed_file.h"

#include <atomic>
#include <cstring>
#include <limits>
#include <utility>

#include "base/checksum.h"
#include "base/json/json_fields.h"
#include "base/pages.h"
#include "base/text.h"
#include "formats/packed_format.h"
#include "kvtide/error.h"

namespace kvtide {

using namespace packed_format;

PackedFile::PackedFile(const std::string& path) : file_(path), bytes_(file_.bytes()), name_(path) {
  read_end();
}

PackedFile PackedFile::from_bytes(std::span<const std::byte> bytes, std::string name) {
  PackedFile file;
  file.bytes_ = bytes;
  file.name_ = std::move(name);
  file.read_end();
  return file;
}

void PackedFile::refuse(const std::string& why) const {
  throw Error(ErrorCode::bad_format, cat(name_, ": not a sound file of packed weights: ", why));
}

void PackedFile::read_end() {
  if (bytes_.size() < kFront + kEnd) refuse(cat("it has only ", bytes_.size(), " bytes"));
  Front front;
  std::memcpy(&front, bytes_.data(), sizeof front);
  if (std::memcmp(front.magic, kMagic, sizeof front.magic) != 0) refuse("it begins as no such file does");
  if (front.version != kVersion)
    throw Error(ErrorCode::unsupported, cat(name_, ": packed weights of version ", front.version,
                                            "; this program reads version ", kVersion));
  for (const std::byte b : bytes_.subspan(offsetof(Front, zero), kFront - offsetof(Front, zero)))
    if (b != std::byte{0}) refuse("its front is damaged");

  End end;
  std::memcpy(&end, bytes_.data() + bytes_.size() - kEnd, sizeof end);
  if (std::memcmp(end.magic, kEndMagic, sizeof end.magic) != 0) refuse("its end is missing");
  if (end.own_sum != crc32c(bytes_.last(kEnd).first(offsetof(End, own_sum)))) refuse("its end is damaged");
  if (end.file_bytes != bytes_.size())
    refuse(cat("it has ", bytes_.size(), " bytes, but its end says ", end.file_bytes));
  if (end.table_bytes > kLargestTable || end.table_bytes > bytes_.size() - kFront - kEnd)
    refuse("its table does not fit the file");
  const auto table = bytes_.last(kEnd + end.table_bytes).first(end.table_bytes);
  if (end.table_sum != crc32c(table)) refuse("its table is damaged");
  read_table({reinterpret_cast<const char*>(table.data()), table.size()});
  const std::uint64_t payload = offsets_.empty() ? kFront : offsets_.back() + padded(matrices_.back().bytes);
  if (payload + end.table_bytes + kEnd != bytes_.size()) refuse("its matrices do not fill it");
}

void PackedFile::read_table(std::string_view text) {
  const JsonValue json = JsonValue::parse(text, name_);
  const JsonFields table(json, name_);
  const auto u32 = [](const JsonFields& fields, std::string_view key) {
    return static_cast<std::uint32_t>(fields.count(key, 0, std::numeric_limits<std::uint32_t>::max()));
  };
  binding_ = {table.required_text("model"), table.required_text("time"), table.required_text("program"),
              u32(table, "layout"), table.required_text("kernels")};
  const JsonValue::List& list = table.list("matrices");
  matrices_.reserve(list.size());
  const auto most = static_cast<std::int64_t>(bytes_.size());
  std::uint64_t offset = kFront;
  for (const JsonValue& item : list) {
    const JsonFields fields(item, name_, "matrices.");
    PackedMatrix matrix;
    matrix.name = fields.required_text("name");
    const std::string type = fields.required_text("type");
    const auto dtype = dtype_from_name(type);
    if (!dtype) refuse(cat("matrix ", quoted(matrix.name), " has an unknown type ", quoted(type)));
    matrix.dtype = *dtype;
    matrix.first = fields.count("first", 0, kLargestExtent);
    matrix.rows = fields.count("rows", 0, kLargestExtent);
    matrix.columns = fields.count("columns", 0, kLargestExtent);
    matrix.ordered = fields.flag("ordered", false);
    matrix.bytes = static_cast<std::uint64_t>(fields.count("bytes", 0, most));
    // No overflow: an offset that passed here lies in the file.
    if (padded(matrix.bytes) > bytes_.size() - offset)
      refuse(cat("matrix ", quoted(matrix.name), " reaches beyond its end"));
    offsets_.push_back(offset);
    offset += padded(matrix.bytes);
    sums_.push_back(u32(fields, "sum"));
    matrices_.push_back(std::move(matrix));
  }
}

std::span<const std::byte> PackedFile::bytes(std::size_t matrix) const {
  return bytes_.subspan(offsets_[matrix], matrices_[matrix].bytes);
}

void PackedFile::verify(ThreadPool& pool) const {
  std::atomic<std::size_t> damaged{matrices_.size()};
  pool.run(static_cast<std::int64_t>(matrices_.size()), [&](std::int64_t i) {
    const auto matrix = static_cast<std::size_t>(i);
    if (crc32c(bytes_.subspan(offsets_[matrix], padded(matrices_[matrix].bytes))) != sums_[matrix])
      damaged.store(matrix, std::memory_order_relaxed);
  });
  if (damaged.load() < matrices_.size())
    refuse(cat("matrix ", quoted(matrices_[damaged.load()].name), " is damaged"));
}

}  // namespace kvtide
