// shard_file.h: the tensors of one shard, checked against the manifest and laid out for the kernels.
//
// Ownership: owns panels, scales and vectors; the file is closed again.
// Thread rules: const from any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "kernels/matmul.h"
#include "model/cca_weights.h"
#include "model/experts.h"
#include "model/residual.h"
#include "shards/manifest.h"

namespace kvtide {

class ShardFile {
 public:
  // Throws Error: not_found, io, bad_format (another size or checksum than the manifest says, other tensors),
  // numeric (NaN or infinity in a tensor).
  ShardFile(const std::string& folder, const ShardEntry& entry, const ModelConfig& config, ThreadPool& pool);

  ShardFile(const ShardFile&) = delete;
  ShardFile& operator=(const ShardFile&) = delete;

  const WeightMatrix& matrix(const std::string& name) const { return matrices_.at(name + ".weight"); }
  const std::vector<float>& vector(const std::string& name) const;  // empty: the shard has none
  const CcaWeights& cca() const { return *cca_; }                   // of cca attention
  const ExpertsWeights& experts() const { return *experts_; }       // of a moe shard
  const ResidualScale& residual() const { return residual_; }       // empty: the usual sum
  std::int64_t bytes() const { return bytes_; }                     // of the panels

 private:
  friend class ShardSource;
  struct Tensors;
  WeightMatrix pack(const Tensors& tensors, const TensorNeed& need, ThreadPool& pool);
  void gather(const ShardEntry& entry, const ModelConfig& config);

  std::optional<CcaWeights> cca_;
  std::optional<ExpertsWeights> experts_;
  ResidualScale residual_;
  std::map<std::string, WeightMatrix> matrices_;
  std::map<std::string, std::vector<float>> vectors_;
  std::vector<float> none_;
  std::deque<std::vector<float>> scales_;
  std::vector<Buffer> panels_;
  std::int64_t bytes_ = 0;
};

// That `file` lies in the folder with the size, and with `sum` the checksum, that the manifest says.
enum class Checksum { leave, compare };
void check_file(const std::string& folder, const FileEntry& file, Checksum sum);

}  // namespace kvtide
