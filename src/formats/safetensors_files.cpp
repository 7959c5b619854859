#include "formats/safetensors_files.h"

#include <algorithm>
#include <map>

#include "base/json/json_value.h"
#include "base/text.h"
#include "formats/text_file.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

constexpr std::string_view kWhole = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::size_t kMostShards = 10'000;

bool is_bare_name(std::string_view name) {
  return name.size() > std::string_view(".safetensors").size() && name.ends_with(".safetensors") &&
         name.find('/') == name.npos && name.find('\\') == name.npos && name.find('\0') == name.npos &&
         !name.starts_with('.');
}

// From a tensor to the shard that holds it, as the index says.
std::map<std::string, std::string> read_index(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::bad_format, cat(path, ": ", why));
  };
  const JsonValue index = JsonValue::parse(read_whole_text(path), path);
  const JsonValue* places = index.find("weight_map");
  if (places == nullptr || places->object() == nullptr || places->object()->empty())
    refuse("'weight_map' must be an object that names a file for every tensor");
  std::map<std::string, std::string> out;
  for (const auto& [tensor, shard] : *places->object()) {
    if (shard.text() == nullptr || !is_bare_name(*shard.text()))
      refuse(cat("tensor ", quoted(tensor), " lies in ", shard.text() ? quoted(*shard.text()) : "no file",
                 "; a shard is a bare name that ends with .safetensors"));
    out.emplace(tensor, *shard.text());
  }
  return out;
}

}  // namespace

SafeTensorsFiles::SafeTensorsFiles(const std::string& folder, MappedFile::Mode mode) {
  const std::string whole = cat(folder, "/", kWhole), index = cat(folder, "/", kIndex);
  std::map<std::string, std::string> places;
  if (file_exists(whole)) {
    add(whole, mode);
  } else if (!file_exists(index)) {
    throw Error(ErrorCode::not_found,
                cat(folder, ": no weights: there is neither ", kWhole, " nor ", kIndex,
                    file_exists(folder + "/pytorch_model.bin") ? "; pytorch_model.bin is not read, save the "
                                                                 "model as safetensors"
                                                               : ""));
  } else {
    places = read_index(index);
    std::vector<std::string> shards;
    for (const auto& [tensor, shard] : places) shards.push_back(shard);
    std::sort(shards.begin(), shards.end());
    shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
    if (shards.size() > kMostShards)
      throw Error(ErrorCode::bad_format,
                  cat(index, ": names ", shards.size(), " shards; at most ", kMostShards, " are allowed"));
    for (const std::string& shard : shards) add(cat(folder, "/", shard), mode);
  }
  std::sort(tensors_.begin(), tensors_.end(),
            [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  const auto same = [](const Tensor& a, const Tensor& b) { return a.name == b.name; };
  const auto twice = std::adjacent_find(tensors_.begin(), tensors_.end(), same);
  if (twice != tensors_.end())
    throw Error(ErrorCode::bad_format, cat(index, ": tensor ", quoted(twice->name), " lies in both ",
                                           paths_[twice->file], " and ", paths_[(twice + 1)->file]));
  for (const auto& [name, shard] : places) {
    const Tensor* tensor = find(name);
    if (tensor == nullptr || paths_[tensor->file] != cat(folder, "/", shard))
      throw Error(ErrorCode::bad_format, cat(index, ": says that tensor ", quoted(name), " lies in ",
                                             quoted(shard), ", but it is not there"));
  }
}

void SafeTensorsFiles::add(const std::string& path, MappedFile::Mode mode) {
  files_.emplace_back(path, mode);
  paths_.push_back(path);
  SafeTensors parsed = SafeTensors::parse(files_.back().bytes(), path);
  for (auto& [name, tensor] : parsed.tensors)
    tensors_.push_back({name, std::move(tensor), files_.size() - 1});
}

std::uint64_t SafeTensorsFiles::file_bytes() const {
  std::uint64_t bytes = 0;
  for (const MappedFile& file : files_) bytes += file.bytes().size();
  return bytes;
}

const SafeTensorsFiles::Tensor* SafeTensorsFiles::find(std::string_view name) const {
  const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const Tensor& tensor, std::string_view n) { return tensor.name < n; });
  return at != tensors_.end() && at->name == name ? &*at : nullptr;
}

void SafeTensorsFiles::release(const Tensor& tensor, std::size_t offset, std::size_t size) const noexcept {
  const MappedFile& file = files_[tensor.file];
  file.release(static_cast<std::size_t>(tensor.value.bytes.data() - file.bytes().data()) + offset, size);
}

}  // namespace kvtide
