// Layers and whole passes of the plain decoder, computed with a mistake (Twist).
#include <algorithm>
#include <utility>

#include "validate/plain_decoder.h"

namespace kvtide {

PlainMatrix PlainDecoder::decoded_once(PlainMatrix matrix, Role role, int layer) const {
  constexpr std::int64_t kMost = std::int64_t{1} << 28;  // elements: a gigabyte
  const std::int64_t rows = matrix.rows, columns = matrix.columns;
  if (columns > kMost / std::max<std::int64_t>(rows, 1)) return matrix;
  auto& held = (*decoded_)[{role, layer}];
  if (!held) {
    std::vector<float> all(static_cast<std::size_t>(rows * columns));
    constexpr std::int64_t kRun = 64;
    pool_.run((rows + kRun - 1) / kRun, [&](std::int64_t run) {
      for (std::int64_t r = run * kRun; r < std::min(rows, (run + 1) * kRun); ++r)
        matrix.row(r, all.data() + r * columns);
    });
    held = std::make_shared<const std::vector<float>>(std::move(all));
  }
  return {rows, columns, [held = held, columns](std::int64_t index, float* out) {
            std::copy_n(held->begin() + index * columns, columns, out);
          }};
}

// Whatever ends a twisted computation, the decoder then is straight again.
class PlainDecoder::Twisted {
 public:
  Twisted(PlainDecoder& decoder, const Twist& twist) : decoder_(decoder) { decoder_.twist_ = twist; }
  ~Twisted() { decoder_.twist_ = {}; }

 private:
  PlainDecoder& decoder_;
};

class PlainDecoder::Decoding {
 public:
  explicit Decoding(PlainDecoder& decoder) : decoder_(decoder) { decoder_.decoded_.emplace(); }
  ~Decoding() { decoder_.decoded_.reset(); }
  Decoding(const Decoding&) = delete;
  Decoding& operator=(const Decoding&) = delete;

 private:
  PlainDecoder& decoder_;
};

std::optional<TwistedLayer> PlainDecoder::twisted(int layer, std::span<const float> input,
                                                  const Twist& twist) {
  Rows x(input.begin(), input.end());
  if (config_.experts) {
    // What the router of the layer before had of these very inputs.
    const auto pass = std::find_if(passes_.begin(), passes_.end(),
                                   [&](const Pass& p) { return p.layer == layer && p.input == x; });
    if (pass == passes_.end()) return std::nullopt;
    router_ = pass->router;
  }
  const Twisted scope(*this, twist);
  if (twist.slip == Slip::weights_of_other_layer &&
      twist.number < static_cast<double>(config_.layers.size())) {
    const auto& own = config_.layers[static_cast<std::size_t>(layer)];
    const auto& other = config_.layers[static_cast<std::size_t>(twist.number)];
    if (own.mixer == other.mixer && own.routed == other.routed) layer = static_cast<int>(twist.number);
  }
  TwistedLayer out{{}, HeldRows{}};
  const Rows entered = x;
  attention(x, layer, twist, &*out.rows);
  feed_forward(x, layer, entered);
  out.stream = std::move(x);
  return out;
}

std::optional<std::vector<float>> PlainDecoder::twisted_embedding(std::span<const TokenId> tokens,
                                                                  const Twist& twist) {
  const Twisted scope(*this, twist);
  return embedded(tokens);
}

std::optional<std::vector<float>> PlainDecoder::twisted_head(std::span<const float> stream,
                                                             const Twist& twist) {
  const Twisted scope(*this, twist);
  return logits_of({stream.begin(), stream.end()});
}

// All twists go through a layer before the next one, so that its weights are decoded once.
bool PlainDecoder::twisted_logits(std::span<const TokenId> tokens, std::span<const Twist* const> twists,
                                  const std::function<void(std::size_t, std::vector<float>)>& give) {
  struct OnePass {
    Rows x, router;
  };
  choices_.clear();
  last_ = {};
  std::vector<OnePass> passes;
  for (const Twist* twist : twists) {
    const Twisted scope(*this, *twist);
    passes.push_back({embedded(tokens), {}});
  }
  const Decoding decoding(*this);
  for (int layer = 0; layer < static_cast<int>(config_.layers.size()); ++layer) {
    decoded_->clear();
    for (std::size_t i = 0; i < twists.size(); ++i) {
      const Twisted scope(*this, *twists[i]);
      std::swap(router_, passes[i].router);
      const Rows entered = passes[i].x;
      attention(passes[i].x, layer, *twists[i], nullptr);
      feed_forward(passes[i].x, layer, entered);
      std::swap(router_, passes[i].router);
    }
  }
  for (std::size_t i = 0; i < twists.size(); ++i) {
    const Twisted scope(*this, *twists[i]);
    give(i, logits_of(passes[i].x));
  }
  return true;
}

}  // namespace kvtide
