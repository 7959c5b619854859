// head_worth.h: what the old rows of a head are worth: how much dearer words that come back are without them.
//
// How much a head attends back does not say that: others may find the same words (docs/procedural_measurements.md).
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "eval/words_twice.h"
#include "kvtide/model.h"

namespace kvtide {

struct HeadPlace {
  int layer = 0, head = 0;  // a layer that attends; a KV head of it
};

// Nats a token of the second copies, means over the texts. Heads lose their rows of the first copies one after the other,
// those that cost least alone first: each is worth what it costs beyond those before it, so that of two that stand in
// for one another one has a worth. Costs two readings of the second copies per head and text.
std::vector<float> head_worths(const Model& model, ThreadPool& pool, std::span<const WordsTwice> texts,
                               std::span<const HeadPlace> heads);

}  // namespace kvtide
