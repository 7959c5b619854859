#include "coreml/write/blob_file.h"

#include <array>
#include <cstring>

#include "base/file.h"
#include "base/text.h"
#include "coreml/program/data_type.h"
#include "coreml/write/values.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

constexpr std::uint64_t kBlobAlignment = 64;

// A numbering of its own, not that of the program.
std::uint32_t blob_code(DataType type) {
  switch (type) {
    case DataType::fp16:
      return 1;
    case DataType::fp32:
      return 2;
    case DataType::uint8:
      return 3;
    case DataType::int8:
      return 4;
    case DataType::int16:
      return 6;
    case DataType::uint16:
      return 7;
    case DataType::int4:
      return 8;
    case DataType::uint1:
      return 9;
    case DataType::uint2:
      return 10;
    case DataType::uint4:
      return 11;
    case DataType::uint3:
      return 12;
    case DataType::uint6:
      return 13;
    case DataType::int32:
      return 14;
    case DataType::uint32:
      return 15;
    default:
      return 0;
  }
}

std::uint64_t aligned_for_blob(std::uint64_t offset) {
  return (offset + kBlobAlignment - 1) / kBlobAlignment * kBlobAlignment;
}

using BlobRecord = std::array<std::byte, kBlobAlignment>;

template <class T>
void put_at(BlobRecord& record, std::size_t offset, T value) {
  std::memcpy(record.data() + offset, &value, sizeof value);
}

std::size_t size_in_blob(const Value& value) {
  return bytes_for(value.type.dtype, *elements_of(value.type.shape));
}

BlobRecord blob_record(const Value& value, std::uint64_t at) {
  const std::size_t size = size_in_blob(value);
  BlobRecord record{};
  put_at(record, 0, std::uint32_t{0xDEADBEEF});
  put_at(record, 4, blob_code(value.type.dtype));
  put_at(record, 8, std::uint64_t{size});
  put_at(record, 16, at + kBlobAlignment);
  const std::uint64_t used =
      *elements_of(value.type.shape) * static_cast<std::uint64_t>(bits_of(value.type.dtype));
  put_at(record, 24, size * 8 - used);
  return record;
}

std::vector<std::byte> made_now(const Value& value) {
  std::vector<std::byte> bytes = value.late->make();
  if (bytes.size() != size_in_blob(value))
    throw Error(ErrorCode::invalid_argument,
                cat("a weight of ", size_in_blob(value), " bytes was made of ", bytes.size()));
  return bytes;
}

}  // namespace

bool goes_to_blob(const Value& value, int specification) {
  if (value.type.kind != ValueType::Kind::tensor ||
      elements_of(value.type.shape).value_or(0) < kLeastBlobElements)
    return false;
  switch (value.type.dtype) {
    case DataType::int16:
    case DataType::uint16:
    case DataType::int32:
    case DataType::uint32:
      return specification >= 9;
    default:
      return blob_code(value.type.dtype) != 0;
  }
}

std::uint64_t BlobFile::add(const Value& value) {
  const void* const place =
      value.late ? static_cast<const void*>(value.late.get()) : static_cast<const void*>(value.bytes.data());
  const std::size_t wanted = size_in_blob(value);
  auto& [size, offset] = known_[{place, value.type.dtype}];
  if (offset != 0 && size == wanted) return offset;
  size = wanted;
  offset = end_;
  weights_.emplace_back(offset, value);
  end_ = aligned_for_blob(offset + kBlobAlignment + size);
  return offset;
}

void BlobFile::save(const std::string& path) const {
  PosixFiles files;
  save_file_in_parts(files, path, [&](const FileSink& sink) {
    BlobRecord header{};
    put_at(header, 0, static_cast<std::uint32_t>(weights_.size()));
    put_at(header, 4, std::uint32_t{2});
    sink(header);
    static constexpr BlobRecord kZeros{};
    for (const auto& [offset, value] : weights_) {
      sink(blob_record(value, offset));
      if (value.late)
        sink(made_now(value));
      else
        sink(value.bytes);
      const std::uint64_t end = offset + kBlobAlignment + size_in_blob(value);
      sink(std::span(kZeros).first(static_cast<std::size_t>(aligned_for_blob(end) - end)));
    }
  });
}

}  // namespace kvtide::coreml
