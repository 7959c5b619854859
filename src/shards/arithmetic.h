// arithmetic.h: what a shard computes, on rows of activations: the same steps, kernels and order of sums as
// the forward pass (decoder.h), so that a chain of f16 shards gives the bits of a session on the same weights
// with f32 activations and an f16 memory.
//
// Ownership: none; rows are the caller's.
// Thread rules: the pool's. No row's result depends on another row.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "kvtide/types.h"
#include "model/config/config.h"
#include "shards/shard_file.h"

namespace kvtide {

struct ShardMachine {
  const ModelConfig& config;
  const Kernels& kernels;
  ThreadPool& pool;
};

// Keys and values of one layer, [kv_heads][slots][head_dim] in f16 each.
struct ShardRows {
  std::uint16_t *keys = nullptr, *values = nullptr;
  std::int64_t slots = 0;
};

struct AttentionCall {
  std::int64_t columns = 0;                        // active ones
  Pos first = 0;                                   // slot of the first
  std::span<const Pos> lowest;                     // first slot that each column sees
  const float *cosine = nullptr, *sine = nullptr;  // [columns][rope_dims / 2]
};

// What cca attention carries from column to column (cca.h), before the first column and behind each one.
struct CarriedTensors {
  std::vector<float> conv_state, prev_value;
};
using CarriedColumns = std::vector<CarriedTensors>;

// rows[columns][width] += attention of their norm. Writes the rows [first, first + columns) of the state,
// which are as before when this throws. Throws Error(numeric). Of cca attention `carried` holds what was
// carried so far, and then also what is behind every column; others leave it alone.
void run_attention(const ShardMachine& machine, const ShardFile& file, const AttentionCall& call,
                   const ShardRows& state, CarriedColumns& carried, float* rows);
// rows[count][width] += feed-forward of their norm.
void run_mlp(const ShardMachine& machine, const ShardFile& file, std::int64_t count, float* rows);
// The same with routed experts. router[count][router_width]: the states of the routers of the layer before,
// replaced by those of this layer.
void run_moe(const ShardMachine& machine, const ShardFile& file, std::int64_t count, float* router,
             float* rows);
// logits[count][tokens of the shard] of the norm of rows [count][width].
void run_head(const ShardMachine& machine, const ShardFile& file, std::int64_t count, const float* rows,
              float* logits);
// rows[ids][width] of the tokens at positions first, first + 1, ...
void run_embedding(const ShardMachine& machine, const ShardFile& file, std::span<const TokenId> ids,
                   Pos first, float* rows);

}  // namespace kvtide
