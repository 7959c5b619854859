// head_table.h: which (layer, KV head) pairs copy from the past, and how much of a budget each of them earns.
//
// Induction: a text with the same random words twice, far apart. A head that sends its attention from the
// second copy back to the first (to the same word or to the one behind it) is needed whole for recall; the
// need cannot be seen before the repeat comes. Share: over blocks of prose, how often a head's rows are among
// the most telling of all heads. The prose is the model's own writing, so that no text has to be shipped.
#pragma once

#include <functional>

#include "kvtide/model.h"
#include "kvtide/procedural.h"

namespace kvtide {

struct HeadTableOptions {
  int threads = 0;                             // as in SessionOptions
  std::int64_t prose = 3072;                   // tokens that the model writes
  std::function<bool(double share)> progress;  // false stops with Error(cancelled)
};

HeadTable measure_heads(const Model& model, const HeadTableOptions& options = {});

}  // namespace kvtide
