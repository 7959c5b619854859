// reference.h: what the right answer is: a whole text at once, layer by layer, with no cache to be wrong.
//
// Ownership: as implementations say. Thread rules: one caller at a time. Invariant: shapes are those of the
// model under test, rows in the form that TestedModel::rows gives.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/validate/tested_model.h"

namespace kvtide {

struct Golden {
  std::vector<TokenId> tokens;
  std::int64_t layers = 0, width = 0, vocab = 0;
  std::vector<float> hidden;   // [layers + 1][tokens][width]; empty: not known
  std::vector<float> logits;   // [tokens][vocab]; empty: not known
  std::vector<HeldRows> rows;  // per layer; empty: not known

  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
  // The residual stream before layer `layer`; layer == layers: behind the last.
  std::span<const float> stream(std::int64_t layer, Pos token) const {
    return std::span(hidden).subspan(static_cast<std::size_t>((layer * size() + token) * width),
                                     static_cast<std::size_t>(width));
  }
};

// A way in which attention is often computed wrongly: to see whether a wrong result is just that.
struct Twist {
  std::function<bool(Pos query, Pos row)> visible = {};    // empty: as the model says
  std::function<std::int64_t(Pos query)> empty_rows = {};  // rows of zeros that take part in the softmax
  std::int64_t query_shift = 0;                            // queries are rotated so many positions too far
  std::vector<Pos> mixed_chunks =
      {};  // starts of chunks, and the end: heads and tokens change places in them
};

class Reference {
 public:
  virtual ~Reference() = default;
  virtual std::string name() const = 0;
  // The one text that it knows; nullopt: any.
  virtual std::optional<std::vector<TokenId>> text() const { return std::nullopt; }
  // Greedy continuation of text(), where that is known.
  virtual std::vector<TokenId> continuation() const { return {}; }
  virtual Golden run(std::span<const TokenId> tokens) = 0;
  // One layer, fed with input [tokens][width] of positions 0, 1, ...: its output [tokens][width]. nullopt:
  // the reference cannot say.
  virtual std::optional<std::vector<float>> twisted(int /*layer*/, std::span<const float> /*input*/,
                                                    const Twist& /*twist*/) {
    return std::nullopt;
  }
  // How keys are rotated: radians per position of the pairs (i, i + size). Empty: not, or not known.
  virtual std::vector<double> frequencies(int /*layer*/) const { return {}; }
};

}  // namespace kvtide
