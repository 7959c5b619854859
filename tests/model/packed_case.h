// packed_case.h: a model, a cache folder, and loads of the one by way of the other. For tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/thread_pool.h"
#include "model/packed_cache.h"
#include "tests/formats/temporary_folder.h"
#include "tests/model/sample_model.h"

namespace kvtide::testing {

// What a load came to.
struct PackedLoad {
  std::optional<Weights> weights;  // refer to the checkpoint
  PackedUse use;
  std::unique_ptr<Checkpoint> checkpoint;
  std::string notes() const {
    std::string all;
    for (const std::string& note : use.notes) all += note + "\n";
    return all;
  }
};

class PackedCase {
 public:
  explicit PackedCase(const SampleModel& sample = {.types = {DType::q8_0}}) : model(sample_file(sample)) {
    options.folder = folder.path("cache");
    options.smallest = 0;
  }

  PackedLoad load() const {
    PosixFiles files;
    return load(files);
  }
  PackedLoad load(FileSystem& files) const { return load(files, model.path()); }
  PackedLoad load(FileSystem& files, const std::string& path) const {
    PackedLoad done;
    done.checkpoint = open_checkpoint(path);
    ThreadPool pool(2);
    done.weights = load_packed(*done.checkpoint, pool, options, {files, boot}, done.use);
    return done;
  }

  // Names in the cache folder that end so, sorted.
  std::vector<std::string> kept(const std::string& ending = "") const {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(options.folder, none))
      if (entry.path().native().ends_with(ending)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

  TemporaryFolder folder;
  TemporaryFile model;
  PackedOptions options;
  std::string boot = "the first start";
};

}  // namespace kvtide::testing
