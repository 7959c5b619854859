// cache_layout.h: which rows of a package's states hold the keys and values of which layer, as far as names and shapes say so.
//
// Known are the layouts of published exporters, all f16 with rows by position from 0 on:
//   keyCache, valueCache    [layers, 1, heads, rows, dim] or [layers, heads, rows, dim]
//   kv_cache                [2 * layers, heads, rows, dim]: the keys of all layers, then the values
//   k_cache_0, v_cache_0..  [1, heads, rows, dim] for each layer
// and a counter of one element (pastLen), which is the number of tokens read.
// Errors: unsupported names the states that say nothing; invalid_argument for rows of another shape.
// Thread rules: plain values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "coreml/decode/decoder.h"

namespace kvtide::coreml {

// Where the [heads, rows, dim] of a layer's keys or values lie: `block` of them come before, in the state of that name.
struct CachePlace {
  std::string state;
  std::int64_t block = 0;
};

struct CacheLayer {
  CachePlace keys, values;
  std::int64_t heads = 0, slots = 0, width = 0;
};

struct CacheLayout {
  std::vector<CacheLayer> layers;
  std::vector<std::string> counters;
};

CacheLayout cache_layout_of(std::span<const CoremlFeature> states, const std::string& package);

// The first `count` rows of each layer; the first of them is layer `first_layer` of the model.
std::vector<LayerRows> rows_in(const CoremlState& state, const CacheLayout& layout, int first_layer,
                               std::int64_t count);
// Gives every element of the rows from `first` on the same bits.
void fill_rows(CoremlState& state, const CacheLayout& layout, std::int64_t first, std::uint16_t half);
// Puts the first `count` rows of as many layers as the layout has into an empty state, and sets its counters.
void put_rows(CoremlState& state, const CacheLayout& layout, std::span<const LayerRows> rows,
              std::int64_t count);

}  // namespace kvtide::coreml
