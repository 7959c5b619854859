// image.h: a procedural memory as plain data: everything but the bytes of its rows and references.
//
// What a snapshot's header says of it; docs/snapshot_format.md lists the tensors that hold the rest.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "state/spec/procedural_spec.h"

namespace kvtide {

struct ProceduralImage {
  struct Block {
    Pos first = 0, last = 0;
    int level = 1;
    std::int64_t tick = 0;  // consolidations so far when the scores of its rows were written
    Pos reach = 0;          // of its older parts: memory.h
    friend bool operator==(const Block&, const Block&) = default;
  };
  Pos sealed = 0;                                            // positions below, sinks apart, are in blocks
  std::vector<Block> blocks;                                 // of plain heads, oldest first
  std::vector<Pos> full, whole;                              // where the blocks of full heads begin
  std::vector<std::vector<std::vector<std::int64_t>>> rows;  // [layer][KV head][block of its list]
  std::vector<std::vector<double>> lost;            // [layer][KV head] tokens that no row stands for any more
  std::vector<std::vector<double>> strain;          // [layer][KV head] what rows are shared out by
  bool observed = true;                             // are there references yet
  bool mean_keys = true;                            // are four-bit keys kept less a mean
  std::vector<Pos> retained;                        // positions of references that stay
  std::int64_t retain_stride = 1, blocks_seen = 0;  // which blocks leave some behind
  ProceduralCounts counts;                          // of what was done, not of what is held
  std::int64_t mass_errors = 0;                     // sealed heads that counts.log_mass_error is of
};

// A tensor of the memory: its name in a snapshot, what it holds, and where its bytes lie.
struct ProceduralTensor {
  enum class Type { rows, f32, i32 };  // rows: of row_type
  std::string name;
  Type type;
  std::vector<std::int64_t> shape;
  DType row_type = DType::f16;
};

// The tensors that an image has, in their order. The image must have been checked.
std::vector<ProceduralTensor> procedural_tensors(const ProceduralSpec& spec, const ProceduralImage& image,
                                                 int head_dim);

// Throws Error(invalid_argument) naming what contradicts the spec, or what would not fit any memory.
void check(const ProceduralImage& image, const ProceduralSpec& spec, Pos position, int head_dim);

}  // namespace kvtide
