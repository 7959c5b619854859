// shard_samples.h: small models, exported into folders of shards; and hosts that drive them by the contract.
#pragma once

#include <string>
#include <vector>

#include "kvtide/masks.h"
#include "kvtide/session.h"
#include "kvtide/shard.h"
#include "shards/manifest.h"
#include "tests/formats/temporary_folder.h"
#include "tests/model/sample_model.h"

namespace kvtide::testing {

// Of a session that computes in one order whatever the shards do: exact, on one thread.
inline SessionOptions exact_f16() {
  SessionOptions options;
  options.exact = true;
  options.threads = 1;
  return options;
}

// A folder of shards that disappears with the object.
class ShardSample {
 public:
  explicit ShardSample(const std::string& model, ShardExport how = small()) : folder_() {
    go(model, std::move(how));
  }
  explicit ShardSample(const SampleModel& model, ShardExport how = small()) : folder_() {
    const TemporaryFile file = sample_file(model);
    go(file.path(), std::move(how));
  }
  std::string path() const { return folder_.path("shards"); }
  const ShardManifest& manifest() const { return manifest_; }

  static ShardExport small() {
    ShardExport how;
    how.slots = 96;
    how.threads = 1;
    return how;
  }

 private:
  void go(const std::string& model, ShardExport how) {
    if (!how.slots) how.slots = 96;
    export_shards(model, path(), how);
    manifest_ = read_manifest(path());
  }
  TemporaryFolder folder_;
  ShardManifest manifest_;
};

// What a host passes for one call.
struct HostCall {
  std::int64_t columns;
  std::vector<float> x, cosine, sine, attention, write;
  bool hides_past = false, other_positions = false;

  // x [D][T] random; `real` active columns at `first` of a state of `slots`.
  HostCall(const ShardFolder& folder, Pos first, std::int64_t all_columns, std::int64_t real,
           std::uint64_t seed, std::optional<std::int64_t> size = std::nullopt)
      : columns(all_columns),
        x(normals(static_cast<std::size_t>(folder.width() * columns), seed, 1.0f)),
        cosine(static_cast<std::size_t>(columns * folder.rope_half())),
        sine(cosine.size()) {
    if (folder.rope_half() > 0) folder.rope_rows(0, first, columns, cosine, sine);
    ChunkMask chunk;
    chunk.first = first;
    chunk.tokens = columns;
    chunk.rows = folder.slots();
    chunk.real = real;
    chunk.attention_size = size;
    attention = attention_mask(chunk);
    write = write_mask(chunk);
  }
  ShardInputs inputs() const { return {x, cosine, sine, attention, write, hides_past, other_positions}; }
  // Column t alone, at its own position.
  HostCall column(const ShardFolder& folder, Pos first, std::int64_t t,
                  std::optional<std::int64_t> size = std::nullopt) const {
    HostCall one(folder, first + t, 1, 1, 1, size);
    for (std::int64_t c = 0; c < folder.width(); ++c)
      one.x[static_cast<std::size_t>(c)] = x[static_cast<std::size_t>(c * columns + t)];
    return one;
  }
};

// Column t of [channels][columns].
inline std::vector<float> column_of(const std::vector<float>& x, std::int64_t columns, std::int64_t t) {
  std::vector<float> out;
  for (std::size_t i = static_cast<std::size_t>(t); i < x.size(); i += static_cast<std::size_t>(columns))
    out.push_back(x[i]);
  return out;
}

}  // namespace kvtide::testing
