// chain_model.h: a model whose next token depends on the last one alone, as a table says. Its answers are
// known without it.
//
// The embedding of token t is the unit vector t, the layer adds nothing, and the output matrix holds the
// table: the logit of n after t is score[n][t] * 8, as the norm scales a unit vector of 64 elements to
// length 8.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/model/sample_model.h"

namespace kvtide::testing {

class ChainModel {
 public:
  // `tokens`: up to 64; the rest is filled up. Every token is followed by itself until next() says otherwise.
  explicit ChainModel(std::vector<std::string> tokens) : tokens_(std::move(tokens)), table_(64 * 64, 0.0f) {
    while (tokens_.size() < 64) tokens_.push_back("filler" + std::to_string(tokens_.size()));
    for (std::size_t t = 0; t < 64; ++t) score(t, t, 1.0f);
  }
  // The logit of n after t becomes 8 * value.
  ChainModel& score(std::size_t t, std::size_t n, float value) {
    table_[n * 64 + t] = value;
    return *this;
  }
  // Each token of the list is followed by the next.
  ChainModel& chain(const std::vector<std::size_t>& ids) {
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) score(ids[i], ids[i + 1], 2.0f);
    return *this;
  }

  Bytes bytes() const {
    std::vector<float> units(64 * 64, 0.0f), zeros(64 * 128, 0.0f);
    for (std::size_t t = 0; t < 64; ++t) units[t * 64 + t] = 1.0f;
    const std::vector<float> square(64 * 64, 0.0f), ones(64, 1.0f);
    return sample_model({.layers = 1})
        .set_strings("tokenizer.ggml.tokens", tokens_)
        .set_strings("tokenizer.ggml.merges", {})
        .set_floats("token_embd.weight", {64, 64}, units)
        .set_floats("blk.0.attn_output.weight", {64, 64}, square)
        .set_floats("blk.0.ffn_down.weight", {128, 64}, zeros)
        .set_floats("output_norm.weight", {64}, ones)
        .set_floats("output.weight", {64, 64}, table_)
        .build()
        .bytes;
  }

 private:
  std::vector<std::string> tokens_;
  std::vector<float> table_;
};

}  // namespace kvtide::testing
