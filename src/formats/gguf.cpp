#include "formats/gguf.h"

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "formats/gguf_parse.h"
#include "formats/split_name.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

[[noreturn]] void bad(std::string_view file, std::string_view message) {
  throw Error(ErrorCode::bad_format, cat(file, ": ", message));
}

}  // namespace

GgufFile::GgufFile(const std::string& path, MappedFile::Mode mode) : path_(path) {
  parts_.emplace_back(path, mode);
  add_first_part(parts_[0].bytes());
  add_other_parts(mode);
  index_tensors();
}

GgufFile GgufFile::from_bytes(std::span<const std::byte> bytes, std::string name) {
  GgufFile file;
  file.path_ = std::move(name);
  file.add_first_part(bytes);
  if (file.get_uint("split.count").value_or(1) > 1)
    throw Error(ErrorCode::unsupported,
                cat(file.path_, ": a part of a split model cannot be read from memory"));
  file.index_tensors();
  return file;
}

void GgufFile::add_first_part(std::span<const std::byte> bytes) {
  GgufPart parsed = parse_gguf(bytes, path_);
  version_ = parsed.version;
  metadata_ = std::move(parsed.metadata);
  key_order_ = std::move(parsed.key_order);
  tensors_ = std::move(parsed.tensors);
  file_bytes_ = bytes.size();
}

void GgufFile::add_other_parts(MappedFile::Mode mode) {
  const auto count = get_uint("split.count").value_or(1);
  const auto number = get_uint("split.no").value_or(0) + 1;
  const auto name = SplitName::from_path(path_);
  if (count <= 1) {
    if (name && name->count > 1)
      bad(path_,
          cat("is named as one of ", name->count, " parts, but its key 'split.count' does not say so"));
    return;
  }
  if (number != 1)
    bad(path_, cat("is part ", number, " of ", count, " (key 'split.no' is ", number - 1,
                   "); open the first part, named ...", SplitName::suffix(1, count), ", instead"));
  if (!name || name->number != 1 || name->count != count)
    bad(path_, cat("key 'split.count' says ", count, " parts; the first must be named ...",
                   SplitName::suffix(1, count), " for the others to be found beside it"));
  for (std::uint64_t part = 2; part <= count; ++part) add_part(name->sibling(part), part, count, mode);

  const auto total = get_uint("split.tensors.count");
  if (total && *total != tensors_.size())
    bad(path_, cat("key 'split.tensors.count' says ", *total, " tensors; the ", count, " parts hold ",
                   tensors_.size()));
}

// A part's own metadata only says which part it is; what describes the model is in the first.
void GgufFile::add_part(const std::string& path, std::uint64_t number, std::uint64_t count,
                        MappedFile::Mode mode) {
  GgufFile part;
  part.path_ = path;
  parts_.emplace_back(path, mode);
  part.add_first_part(parts_.back().bytes());
  const auto own_number = part.get_uint("split.no");
  const auto own_count = part.get_uint("split.count");
  if (!own_number || *own_number != number - 1)
    bad(path, cat("key 'split.no' is ", own_number ? cat(*own_number) : "absent", "; it must be ", number - 1,
                  " in part ", number, " of ", count));
  if (!own_count || *own_count != count)
    bad(path, cat("key 'split.count' is ", own_count ? cat(*own_count) : "absent", "; the first part says ",
                  count));
  if (tensors_.size() + part.tensors_.size() > kMaxTensors)
    bad(path, cat("brings the model to ", tensors_.size() + part.tensors_.size(), " tensors; at most ",
                  kMaxTensors, " are allowed"));
  for (auto& tensor : part.tensors_) {
    tensor.part = number - 1;
    tensors_.push_back(std::move(tensor));
  }
  file_bytes_ += part.file_bytes_;
}

void GgufFile::index_tensors() {
  name_order_.resize(tensors_.size());
  std::iota(name_order_.begin(), name_order_.end(), 0u);
  std::ranges::sort(name_order_, {}, [&](std::uint32_t i) { return tensors_[i].name; });
  for (std::size_t i = 1; i < name_order_.size(); ++i) {
    const std::string_view name = tensors_[name_order_[i]].name;
    if (name == tensors_[name_order_[i - 1]].name)
      bad(path_, cat("tensor ", quoted(name), " appears more than once; names must be unique"));
  }
}

const std::string& GgufFile::path() const { return path_; }
std::uint32_t GgufFile::version() const { return version_; }
std::vector<std::string> GgufFile::paths() const {
  std::vector<std::string> paths;
  for (const MappedFile& part : parts_) paths.push_back(part.path());
  return paths;
}

std::uint64_t GgufFile::file_bytes() const { return file_bytes_; }
std::span<const GgufEntry> GgufFile::metadata() const { return metadata_; }
std::span<const GgufTensor> GgufFile::tensors() const { return tensors_; }

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto at =
      std::ranges::lower_bound(key_order_, key, {}, [&](std::uint32_t i) { return metadata_[i].key; });
  if (at == key_order_.end() || metadata_[*at].key != key) return nullptr;
  return &metadata_[*at].value;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto at =
      std::ranges::lower_bound(name_order_, name, {}, [&](std::uint32_t i) { return tensors_[i].name; });
  if (at == name_order_.end() || tensors_[*at].name != name) return nullptr;
  return &tensors_[*at];
}

void GgufFile::release(const GgufTensor& tensor) const noexcept { release(tensor, 0, tensor.data.size()); }

void GgufFile::release(const GgufTensor& tensor, std::size_t offset, std::size_t size) const noexcept {
  if (tensor.part >= parts_.size()) return;
  const MappedFile& file = parts_[tensor.part];
  file.release(static_cast<std::size_t>(tensor.data.data() - file.bytes().data()) + offset, size);
}

}  // namespace kvtide
