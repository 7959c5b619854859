#include "shards/shard_folder.h"

#include <algorithm>
#include <cmath>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "formats/text_file.h"
#include "kvtide/error.h"
#include "shards/shard_file.h"

namespace kvtide {
ShardFolder::Impl::Impl(const std::string& folder, const ShardOptions& options)
    : path(folder),
      manifest(read_manifest(folder)),
      kernels(options.kernels.empty() ? best_kernels() : kernels_by_name(options.kernels)),
      pool(ThreadPool::count(options.threads)) {
  for (const ShardEntry& shard : manifest.shards) {
    check_file(path, shard.file, Checksum::leave);  // compared when it is read
    infos.push_back(shard.info);
  }
  for (const FileEntry& file : manifest.tokenizer_files) check_file(path, file, Checksum::compare);
}

bool is_shard_folder(const std::string& path) {
  return file_exists(cat(path, "/", kManifestFile)) && !file_exists(path + "/config.json");
}

ShardFolder::ShardFolder(const std::string& path, const ShardOptions& options) try
    : impl_(std::make_shared<const Impl>(path, options)) {
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}
ShardFolder::~ShardFolder() = default;
ShardFolder::ShardFolder(ShardFolder&&) noexcept = default;
ShardFolder& ShardFolder::operator=(ShardFolder&&) noexcept = default;

const std::vector<ShardInfo>& ShardFolder::shards() const { return impl_->infos; }
std::int64_t ShardFolder::width() const { return impl_->manifest.config.width; }
std::int64_t ShardFolder::vocabulary() const { return impl_->manifest.config.vocab; }
int ShardFolder::layers() const { return static_cast<int>(impl_->manifest.config.layers.size()); }
std::int64_t ShardFolder::slots() const { return impl_->manifest.slots; }
std::int64_t ShardFolder::state_bytes(std::int64_t slots) const {
  return layers() * shard_state_bytes(impl_->manifest.config, slots == 0 ? this->slots() : slots);
}
std::int64_t ShardFolder::t_max() const { return impl_->manifest.t_max; }
std::int64_t ShardFolder::rope_half() const { return impl_->manifest.config.rope_dims / 2; }
std::int64_t ShardFolder::router_width() const {
  const auto& experts = impl_->manifest.config.experts;
  return experts ? experts->router_width : 0;
}
int ShardFolder::ropes() const { return static_cast<int>(impl_->manifest.ropes.size()); }

void ShardFolder::rope_rows(int rope, Pos first, std::int64_t count, std::span<float> cosine,
                            std::span<float> sine) const try {
  if (rope < 0 || rope >= ropes())
    throw Error(ErrorCode::invalid_argument, cat("there is no rope table ", rope, "; there are ", ropes()));
  const auto needed = static_cast<std::size_t>(std::max<std::int64_t>(count, 0) * rope_half());
  if (count < 0 || first < 0 || cosine.size() != needed || sine.size() != needed)
    throw Error(ErrorCode::invalid_argument,
                cat("rope tables of ", count, " positions from ", first, " on have shape [", count, ", ",
                    rope_half(), "]; given are ", cosine.size(), " cosines and ", sine.size(), " sines"));
  const RopeFrequencies& table = impl_->manifest.ropes[static_cast<std::size_t>(rope)];
  std::size_t at = 0;
  for (Pos position = first; position < first + count; ++position)
    for (const double frequency : table.frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      cosine[at] = static_cast<float>(std::cos(angle) * table.magnitude);
      sine[at++] = static_cast<float>(std::sin(angle) * table.magnitude);
    }
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
