#include "coreml/program/weight_files.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "coreml/program/data_type.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace {

constexpr std::uint64_t kRecord =
    64;  // bytes of the header, of a record, and what records lie at multiples of
constexpr std::uint32_t kSentinel = 0xDEADBEEF;
constexpr char kFolder[] = "@model_path/";

struct WeightHeader {
  std::uint32_t count, version;
};

struct WeightRecord {
  std::uint32_t sentinel, dtype;
  std::uint64_t size, offset, padding_bits;
};

// By the number that a weight file has for them.
constexpr DataType kWeightTypes[] = {DataType::none,      DataType::fp16,   DataType::fp32,  DataType::uint8,
                                     DataType::int8,      DataType::bf16,   DataType::int16, DataType::uint16,
                                     DataType::int4,      DataType::uint1,  DataType::uint2, DataType::uint4,
                                     DataType::uint3,     DataType::uint6,  DataType::int32, DataType::uint32,
                                     DataType::fp8e4m3fn, DataType::fp8e5m2};

template <class T>
T at(std::span<const std::byte> bytes, std::uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

}  // namespace

std::span<const std::byte> weight_at(std::span<const std::byte> blob, std::uint64_t offset, DataType dtype,
                                     std::size_t elements, std::string_view file) {
  const auto refuse_file = [&](const std::string& why, ErrorCode code = ErrorCode::bad_format) {
    throw Error(code, cat(file, ": ", why));
  };
  if (blob.size() < kRecord)
    refuse_file(cat("header: has ", blob.size(), " bytes; a weight file begins with ", kRecord));
  const auto header = at<WeightHeader>(blob, 0);
  if (header.version != 2)
    refuse_file(cat("header: version ", header.version, "; version 2 is read"), ErrorCode::unsupported);
  const std::string record_name = cat("record at byte ", offset, ": ");
  if (offset < kRecord || offset % kRecord != 0)
    refuse_file(cat(record_name, "records lie at multiples of ", kRecord, " from ", kRecord, " on"));
  if (offset > blob.size() - kRecord) refuse_file(cat(record_name, "the file ends at byte ", blob.size()));
  const auto record = at<WeightRecord>(blob, offset);
  if (record.sentinel != kSentinel) refuse_file(cat(record_name, "sentinel: no record begins here"));
  const DataType stored =
      record.dtype < std::size(kWeightTypes) ? kWeightTypes[record.dtype] : DataType::none;
  if (stored != dtype)
    refuse_file(cat(record_name, "dtype: ", record.dtype, " (", name_of(stored), "); the program says ",
                    name_of(dtype)));
  const std::size_t needed = bytes_for(dtype, elements);
  if (record.size != needed)
    refuse_file(cat(record_name, "sizeInBytes: ", record.size, "; ", elements, " elements of ",
                    name_of(dtype), " have ", needed));
  if (record.offset % kRecord != 0)
    refuse_file(cat(record_name, "offset: ", record.offset, " is no multiple of ", kRecord));
  if (record.offset < kRecord || record.offset > blob.size() || record.size > blob.size() - record.offset)
    refuse_file(cat(record_name, "offset: ", record.size, " bytes from byte ", record.offset,
                    " on, but the file has ", blob.size(), " bytes"));
  // Written for elements below a byte only: before iOS 18 the field held anything.
  const auto bits = static_cast<std::uint64_t>(bits_of(dtype));
  if (bits < 8 && record.padding_bits != needed * 8 - elements * bits)
    refuse_file(cat(record_name, "padding_size_in_bits: ", record.padding_bits, "; it is ",
                    needed * 8 - elements * bits));
  return blob.subspan(record.offset, record.size);
}

void WeightFiles::find(Value& value, std::string_view name, std::uint64_t offset) {
  if (!name.starts_with(kFolder))
    throw Error(ErrorCode::bad_format, cat("fileName: ", quoted(name), " does not begin with ", kFolder));
  const std::string inside(name.substr(std::string_view(kFolder).size()));
  check_inside(inside, "fileName:");
  const auto elements = elements_of(value.type.shape);
  if (value.type.kind != ValueType::Kind::tensor || value.type.any_rank || !elements)
    throw Error(ErrorCode::bad_format, "a weight must be a tensor whose shape is known");
  const auto& file = open(inside);
  value.bytes = weight_at(file->file.bytes(), offset, value.type.dtype, *elements, inside);
  value.from_blob = true;
  value.blob_offset = offset;
  value.blob_file = file->name;
  value.keeps = file;
  value.file = std::shared_ptr<const MappedFile>(file, &file->file);
}

std::vector<std::string> WeightFiles::paths() const {
  std::vector<std::string> out;
  for (const auto& [inside, file] : files_) out.push_back(file->file.path());
  return out;
}

const std::shared_ptr<const WeightFiles::WeightFile>& WeightFiles::open(const std::string& inside) {
  const auto found = files_.find(inside);
  if (found != files_.end()) return found->second;
  auto opened =
      std::make_shared<const WeightFile>(WeightFile{kFolder + inside, MappedFile(folder_ + "/" + inside)});
  return files_.emplace(inside, std::move(opened)).first->second;
}

void check_inside(std::string_view path, std::string_view what) {
  const auto wrong = [&](std::string_view why) {
    throw Error(ErrorCode::bad_format, cat(what, " ", quoted(path), " ", why));
  };
  if (path.empty()) wrong("is empty; it must be a path inside the package");
  for (const char c : path)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) wrong("holds a control character");
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..")
      wrong("leaves the package; it must be a relative path of plain names");
    begin = end + 1;
  }
}

}  // namespace kvtide::coreml
