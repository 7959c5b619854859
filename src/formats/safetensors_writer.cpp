#include "formats/safetensors_writer.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/checked.h"
#include "base/checksum.h"
#include "base/json/json.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

std::uint64_t element_bytes(const std::string& dtype) {
  if (dtype == "F32" || dtype == "I32") return 4;
  if (dtype == "F16" || dtype == "BF16") return 2;
  if (dtype == "I8" || dtype == "U8") return 1;
  return 0;
}

}  // namespace

void SafeTensorsWriter::add(const std::string& name, const std::string& dtype,
                            const std::vector<std::int64_t>& shape, std::vector<std::byte> bytes) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, cat("safetensors: tensor ", quoted(name), " ", why));
  };
  if (name.empty() || name == "__metadata__") refuse("cannot have that name");
  for (const Array& array : arrays_)
    if (array.name == name) refuse("is there twice");
  Array array{name, dtype, shape, std::move(bytes), element_bytes(dtype)};
  if (array.element_bytes == 0) refuse(cat("has type ", quoted(dtype), ", which is not written"));
  std::optional<std::uint64_t> needed = array.element_bytes;
  for (const std::int64_t extent : shape) {
    if (extent < 0) refuse("has a negative extent");
    if (needed) needed = checked_mul(*needed, static_cast<std::uint64_t>(extent));
  }
  if (!needed || *needed != array.bytes.size())
    refuse(cat("has ", array.bytes.size(), " bytes, which is not what its shape needs"));
  arrays_.push_back(std::move(array));
}

std::string SafeTensorsWriter::header(const std::vector<const Array*>& order) const {
  Json json = Json::object();
  if (!metadata_.empty()) {
    Json metadata = Json::object();
    for (const auto& [key, value] : metadata_) metadata.set(key, value);
    json.set("__metadata__", std::move(metadata));
  }
  std::uint64_t offset = 0;
  for (const Array* array : order) {
    const std::uint64_t end = offset + array->bytes.size();
    Json item = Json::object();
    item.set("dtype", array->dtype)
        .set("shape", Json::array(array->shape))
        .set("data_offsets", Json::array(std::vector{offset, end}));
    json.set(array->name, std::move(item));
    offset = end;
  }
  std::string text = json.text(JsonForm::line);
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

SafeTensorsWriter::Written SafeTensorsWriter::save(FileSystem& files, const std::string& path) const {
  std::vector<const Array*> order;
  for (const Array& array : arrays_) order.push_back(&array);
  std::sort(order.begin(), order.end(), [](const Array* a, const Array* b) {
    return std::tie(b->element_bytes, a->name) < std::tie(a->element_bytes, b->name);
  });
  const std::string text = header(order);
  const std::uint64_t length = text.size();
  std::vector<std::span<const std::byte>> pieces = {std::as_bytes(std::span(&length, 1)),
                                                    std::as_bytes(std::span(text))};
  for (const Array* array : order) pieces.emplace_back(array->bytes);
  Written written;
  for (const auto piece : pieces) {
    written.bytes += piece.size();
    written.crc32c = crc32c(piece, written.crc32c);
  }
  save_file(files, path, pieces);
  return written;
}

}  // namespace kvtide
