// packed_cache.h: the weights of a model from a file that an earlier load, or `kvtide pack`, has left.
//
// What a file is asked, in this order: is it whole (its length, its front, its table), is it this model's and this
// program's (packed_binding.h), have all sums been right since the machine was started, and are its matrices those
// that the model asks for. Sums are compared once after every start of the machine: a write that a loss of power cut
// short lies before it, as does most of what a disk forgets; and the file has to be read then anyway. What
// changes later shows as other logits, never as a crash: packed bytes hold no places and no lengths.
// Ownership: what is returned owns its mapping.
// Thread rules: one caller; other processes may do the same at the same time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/file.h"
#include "base/thread_pool.h"
#include "kvtide/model.h"
#include "model/checkpoint.h"
#include "model/weights.h"

namespace kvtide {

// The outside world.
struct PackedWorld {
  FileSystem& files;
  std::string boot;  // boot_id.h
};

// nullopt: they have to be packed into memory; `use` says which file was of no use, and why. Throws Error for what
// is wrong with the model itself, and out_of_memory.
std::optional<Weights> load_packed(const Checkpoint& checkpoint, ThreadPool& pool,
                                   const PackedOptions& options, const PackedWorld& world, PackedUse& use);

// Packs into a file; returns its bytes. Throws Error: io, and as Weights does.
std::int64_t save_packed(const Checkpoint& checkpoint, ThreadPool& pool, FileSystem& files,
                         const std::string& path, const PackedBinding& binding, Flush flush);

}  // namespace kvtide
