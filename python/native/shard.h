// shard.h: the shards of a folder as Python holds them.
//
// Thread rules: every member is called under the GIL and gives it up while a shard computes. The shards of a
// folder share its threads, so they share its turns, too: a second call that arrives meanwhile is refused.
// What a state tells of itself can be read at any time.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <string>

#include "kvtide/shard.h"
#include "turn.h"

namespace kvtide::python {

using ShardFloats =
    nanobind::ndarray<const float, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using ShardIds =
    nanobind::ndarray<const TokenId, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

class PyShardState {
 public:
  PyShardState(ShardState state, std::shared_ptr<Turns> turns)
      : state_(std::move(state)), turns_(std::move(turns)) {}
  ~PyShardState() {
    if (turns_->abandoned()) new ShardState(std::move(state_));  // is never destroyed
  }
  PyShardState(const PyShardState&) = delete;
  PyShardState& operator=(const PyShardState&) = delete;

  const ShardState& look() const { return state_; }  // what never changes
  Pos position() const { return position_; }
  void truncate(Pos n);
  // A writable array that looks into the state and keeps `self`, this object, alive.
  nanobind::object tensor(nanobind::handle self, std::size_t index) const;

 private:
  friend class PyShard;
  ShardState state_;
  Pos position_ = 0;  // after the newest call
  std::shared_ptr<Turns> turns_;
};

class PyShard {
 public:
  PyShard(Shard shard, std::shared_ptr<Turns> turns) : shard_(std::move(shard)), turns_(std::move(turns)) {}

  const Shard& look() const { return shard_; }
  PyShardState* make_state() const;
  nanobind::object predict_attention(const ShardFloats& x, const ShardFloats& cosine, const ShardFloats& sine,
                                     const ShardFloats& attention_mask, const ShardFloats& write_mask,
                                     PyShardState& state, bool hides_past, bool other_positions);
  nanobind::object predict_hidden(const ShardFloats& hidden);
  // (hidden, router)
  nanobind::object predict_moe(const ShardFloats& hidden, const ShardFloats& router);
  nanobind::object predict_ids(const ShardIds& ids, Pos first);

 private:
  Shard shard_;
  std::shared_ptr<Turns> turns_;
};

class PyShardFolder {
 public:
  PyShardFolder(const nanobind::bytes& path, int threads);

  const ShardFolder& look() const { return *folder_; }
  PyShard* open(const nanobind::str& name) const;
  nanobind::object rope_rows(int rope, Pos first, std::int64_t count) const;

 private:
  std::unique_ptr<ShardFolder> folder_;
  std::shared_ptr<Turns> turns_ = std::make_shared<Turns>("folder of shards");
};

void bind_shard(nanobind::module_& module);

}  // namespace kvtide::python
