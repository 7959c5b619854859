// tensor_export.h: one weight matrix as the bytes of an exported tensor: f16, f32, or 8-bit integers and
// scales.
//
// int8 is symmetric: element = scale * integer, scale = largest magnitude / 127, of the whole matrix or of
// each row. A row (or matrix) of zeros gets the scale 1. Pure functions; threads of the pool share the rows.
#pragma once

#include <string>

#include "formats/safetensors_writer.h"
#include "shards/arithmetic.h"
#include "shards/manifest.h"

namespace kvtide {

// Rows [first, last) of the matrix. Adds `name`, for int8 also "<name>_scale", to the writer and their
// entries to `shard`. Throws Error(numeric): an element that f16 cannot hold.
struct MatrixExport {
  std::string name;
  const WeightMatrix* matrix;
  std::int64_t first, last;
  bool int8;
  ShardExport::Scales scales;
  bool f32 = false;  // instead of f16
};
void export_matrix(const Kernels& kernels, ThreadPool& pool, const MatrixExport& what,
                   SafeTensorsWriter& writer, ShardEntry& shard);
// As f32; with columns as [rows, columns].
void export_vector(const std::string& name, const std::vector<float>& values, SafeTensorsWriter& writer,
                   ShardEntry& shard, std::int64_t columns = 0);

}  // namespace kvtide
