// shard_folder.h: what the shards of one opened folder share: manifest, kernels and threads.
#pragma once

#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kvtide/shard.h"
#include "shards/manifest.h"

namespace kvtide {

struct ShardFolder::Impl {
  std::string path;
  ShardManifest manifest;
  std::vector<ShardInfo> infos;
  const Kernels& kernels;
  mutable ThreadPool pool;

  Impl(const std::string& folder, const ShardOptions& options);
};

// Whether `path` is a folder with a manifest, whatever the manifest says.
bool is_shard_folder(const std::string& path);

}  // namespace kvtide
