#include "shards/shard_file.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <numeric>

#include "base/checksum.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "formats/safetensors.h"
#include "kernels/codec.h"
#include "kernels/pack.h"
#include "kvtide/error.h"
#include "model/stored_rows.h"
#include "shards/hybrid_names.h"

namespace kvtide {
namespace {

constexpr const char* kNotFinite = "holds NaN or infinity; weights must be finite numbers";

DType float_type(const std::string& dtype) { return dtype == "F16" ? DType::f16 : DType::f32; }

void compare_sum(const std::string& path, std::span<const std::byte> bytes, const FileEntry& file) {
  if (crc32c(bytes) != file.crc32c)
    throw Error(ErrorCode::bad_format,
                cat(path, ": its checksum is not the manifest's; the file was damaged or exchanged"));
}

}  // namespace

void check_file(const std::string& folder, const FileEntry& file, Checksum sum) {
  const std::string path = cat(folder, "/", file.file);
  std::error_code failure;
  const auto size = std::filesystem::file_size(path, failure);
  if (failure)
    throw Error(ErrorCode::not_found, cat(path, ": the manifest lists this file: ", failure.message()));
  if (size != file.bytes)
    throw Error(ErrorCode::bad_format, cat(path, ": has ", size, " bytes; the manifest says ", file.bytes));
  if (sum == Checksum::compare) compare_sum(path, MappedFile(path).bytes(), file);
}

// The tensors of a shard's file while it is read.
struct ShardFile::Tensors {
  const std::string& path;
  const SafeTensors file;

  [[noreturn]] void refuse(ErrorCode code, const std::string& name, const std::string& why) const {
    throw Error(code, cat(path, ": tensor ", quoted(name), " ", why));
  }

  void compare(const std::vector<TensorEntry>& listed) const {
    for (const TensorEntry& wanted : listed) {
      const auto found = file.tensors.find(wanted.name);
      if (found == file.tensors.end()) refuse(ErrorCode::bad_format, wanted.name, "is missing");
      if (found->second.dtype != wanted.dtype || found->second.shape != wanted.shape)
        refuse(ErrorCode::bad_format, wanted.name, "has another type or shape than the manifest says");
    }
    if (file.tensors.size() != listed.size())
      throw Error(ErrorCode::bad_format,
                  cat(path, ": holds ", file.tensors.size(), " tensors; the manifest lists ", listed.size()));
  }

  std::vector<float> floats(const std::string& name) const {
    const SafeTensor& tensor = file.tensors.at(name);
    const std::int64_t count =
        std::accumulate(tensor.shape.begin(), tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
    const DType type = float_type(tensor.dtype);
    if (!scales_finite(type, tensor.bytes.data(), count)) refuse(ErrorCode::numeric, name, kNotFinite);
    std::vector<float> values(static_cast<std::size_t>(count));
    decode_row(type, tensor.bytes.data(), count, values.data());
    return values;
  }

  StoredTensor stored(const std::string& name) const {
    const SafeTensor& tensor = file.tensors.at(name);
    StoredTensor out;
    out.name = name;
    out.shape = tensor.shape;
    out.bytes = tensor.bytes;
    out.dtype = float_type(tensor.dtype);
    if (tensor.dtype == "I8") out.scales = floats(name + "_scale");
    for (const float scale : out.scales)
      if (!(scale > 0.0f))
        refuse(ErrorCode::numeric, name, cat("has a scale of ", scale, "; scales are above 0"));
    return out;
  }
};

ShardFile::ShardFile(const std::string& folder, const ShardEntry& entry, const ModelConfig& config,
                     ThreadPool& pool) {
  const std::string path = cat(folder, "/", entry.file.file);
  check_file(folder, entry.file, Checksum::leave);
  const MappedFile file(path);
  compare_sum(path, file.bytes(), entry.file);
  const Tensors tensors{path, SafeTensors::parse(file.bytes(), path)};
  tensors.compare(entry.tensors);
  for (const TensorNeed& need : tensor_needs(config, entry)) {
    if (!tensors.file.tensors.contains(need.name)) continue;  // optional: the manifest was checked
    if (need.columns == 0 || need.numbers)
      vectors_[need.name] = tensors.floats(need.name);
    else
      matrices_[need.name] = pack(tensors, need, pool);
  }
  gather(entry, config);
}

WeightMatrix ShardFile::pack(const Tensors& tensors, const TensorNeed& need, ThreadPool& pool) {
  const StoredTensor stored = tensors.stored(need.name);
  const StoredRows rows(stored, 0, need.rows, need.columns, nullptr);
  WeightMatrix matrix;
  matrix.dtype = rows.dtype();
  matrix.rows = need.rows;
  matrix.columns = need.columns;
  const std::int64_t panels = (need.rows + kPanelRows - 1) / kPanelRows;
  const std::int64_t size = panel_bytes(matrix.dtype, need.columns);
  panels_.emplace_back(static_cast<std::size_t>(panels * size));
  std::byte* target = panels_.back().data();
  std::atomic<bool> finite{true};
  pool.run(panels, [&](std::int64_t panel) {
    const std::byte* pointers[kPanelRows] = {};
    std::vector<std::byte> scratch;
    rows.gather(panel * kPanelRows, std::min<std::int64_t>(kPanelRows, need.rows - panel * kPanelRows),
                pointers, scratch);
    for (const std::byte* row : pointers)
      if (row != nullptr && !scales_finite(matrix.dtype, row, need.columns))
        finite.store(false, std::memory_order_relaxed);
    pack_panel(matrix.dtype, pointers, need.columns, target + panel * size);
  });
  if (!finite.load()) tensors.refuse(ErrorCode::numeric, need.name, kNotFinite);
  matrix.panels = target;
  bytes_ += panels * size;
  if (!stored.scales.empty()) {
    std::vector<float>& scales = scales_.emplace_back(static_cast<std::size_t>(need.rows), stored.scales[0]);
    if (stored.scales.size() > 1) scales = stored.scales;
    matrix.row_scales = scales.data();
  }
  return matrix;
}

// The tensors of a shard by role, for the parts of a model that load themselves. Their shapes are those of
// tensor_needs, which were checked.
class ShardSource final : public WeightSource {
 public:
  explicit ShardSource(ShardFile& file) : file_(file) {}
  bool has(Role role) const override { return role != Role::expert_gate && role != Role::expert_up; }
  std::vector<float> values(Role role, const std::vector<std::int64_t>&) override {
    return std::move(file_.vectors_.at(hybrid_name(role)));
  }
  WeightMatrix matrix(Role role, std::int64_t, std::int64_t) override {
    return file_.matrices_.at(hybrid_name(role));
  }
  // Of architectures that have no shards.
  WeightMatrix picked_matrix(Role role, std::int64_t, std::int64_t, std::vector<std::int32_t>) override {
    return file_.matrices_.at(hybrid_name(role));
  }
  WeightMatrix part_matrix(Role role, const MatrixPart&) override {
    return file_.matrices_.at(hybrid_name(role));
  }
  WeightMatrix expert_matrix(Role role, std::int64_t, std::int64_t, const ExpertRows& place) override {
    const char* part = role == Role::expert_down ? "down" : place.first == 0 ? "gate" : "up";
    return file_.matrices_.at(expert_name(place.expert, part));
  }

 private:
  ShardFile& file_;
};

void ShardFile::gather(const ShardEntry& entry, const ModelConfig& config) {
  ShardSource source(*this);
  if (entry.info.kind == ShardKind::attention && config.convolved) cca_ = load_cca(config, source);
  if (entry.info.kind == ShardKind::moe) experts_ = load_experts(config, entry.info.layer, source);
  std::vector<float>* parts[] = {&residual_.output_scale, &residual_.output_offset, &residual_.residual_scale,
                                 &residual_.residual_offset};
  for (std::size_t i = 0; i < std::size(parts); ++i)
    if (const auto found = vectors_.find(kResidualNames[i]); found != vectors_.end())
      *parts[i] = std::move(found->second);
}

const std::vector<float>& ShardFile::vector(const std::string& name) const {
  const auto found = vectors_.find(name);
  return found != vectors_.end() ? found->second : none_;
}

}  // namespace kvtide
