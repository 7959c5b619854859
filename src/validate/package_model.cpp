// package_model.cpp: a language model in Core ML packages as a model under test, driven as its exporter meant it
// (coreml/decode/decoder.h).
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/half.h"
#include "base/out_of_memory.h"
#include "base/text.h"
#include "coreml/decode/call_arrays.h"
#include "coreml/decode/decoder.h"
#include "kvtide/error.h"
#include "kvtide/validate.h"

namespace kvtide {
namespace package_model_details {

// Attention masks of packages add -1e4 to scores. So what lies in slots that no token has written must be such as
// keys and values are, and not any number.
constexpr float kLargestPoison = 8.0f;

std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }

struct PackageState final : TestedState {
  coreml::Sequence sequence;
};

class PackagesTested final : public TestedModel {
 public:
  PackagesTested(const std::string& path, const CoremlOptions& options)
      : decoder_(coreml::open_decoder(path, options)) {
    if (decoder_->chooses())
      throw Error(ErrorCode::unsupported,
                  cat(path,
                      ": the head chooses tokens and gives no logits, which are what is "
                      "compared; convert it without argmax in the model"));
    const TokenId first = 0;
    PackageState state;
    state.sequence = decoder_->empty();
    const Reading one = read(state, std::span(&first, 1), {});
    shape_.name = cat(path, " (", coreml::contract_name(decoder_->kind()), ")");
    shape_.vocab = std::ssize(one.logits);
    shape_.largest_chunk = std::max<std::int64_t>(1, decoder_->size_of_call(kLongestCall, kLongestCall));
    shape_.slots = decoder_->slots();
    shape_.forks = true;
    const std::vector<coreml::LayerRows> rows = rows_if_known(state);
    shape_.gives_rows = shape_.truncates = shape_.poisons = !rows.empty();
    shape_.gives_hidden = shape_.isolates = decoder_->shows_layers();
    if (shape_.gives_hidden) shape_.width = std::ssize(one.hidden) / (std::ssize(rows) + 1);
    for (const coreml::LayerRows& layer : rows)
      shape_.layers.push_back(
          {static_cast<int>(layer.keys.shape[1]), static_cast<int>(layer.keys.shape[3]), {}});
  }

  TestedShape shape() const override { return shape_; }

  std::unique_ptr<TestedState> make_state(std::int64_t) override {
    auto state = std::make_unique<PackageState>();
    state->sequence = decoder_->empty();
    return state;
  }

  Reading read(TestedState& state, std::span<const TokenId> tokens, std::span<const float> inputs) override {
    const Reads scope(*this, state);
    std::vector<std::vector<float>> streams;  // of every layer, over the calls that a package makes of one
    const auto layer_size = tokens.size() * size(shape_.width);
    decoder_->on_layer = [&](int layer, std::vector<float>& stream) {
      streams.resize(std::max(streams.size(), size(layer) + 1));
      std::vector<float>& all = streams[size(layer)];
      const std::size_t at = size(layer) * layer_size + all.size();
      all.insert(all.end(), stream.begin(), stream.end());
      if (!inputs.empty() && size(layer) < shape_.layers.size())
        std::copy_n(inputs.begin() + static_cast<std::ptrdiff_t>(at), stream.size(), stream.begin());
    };
    Reading reading;
    reading.logits = decoder_->read(tokens);
    for (const std::vector<float>& stream : streams)
      reading.hidden.insert(reading.hidden.end(), stream.begin(), stream.end());
    return reading;
  }

  HeldRows rows(TestedState& state, int layer) override {
    const coreml::LayerRows held = std::move(rows_of(state)[size(layer)]);
    HeldRows out;
    out.kv_heads = held.keys.shape[1];
    out.rows = held.keys.shape[2];
    out.head_dim = held.keys.shape[3];
    out.keys = coreml::as_floats(held.keys);
    out.values = coreml::as_floats(held.values);
    return out;
  }

  void truncate(TestedState& state, Pos length) override {
    const Reads scope(*this, state);
    decoder_->truncate(length);
  }

  std::unique_ptr<TestedState> fork(TestedState& state) override {
    auto copy = std::make_unique<PackageState>();
    copy->sequence = static_cast<PackageState&>(state).sequence.fork();
    return copy;
  }

  void poison(TestedState& state, float value) override {
    const Reads scope(*this, state);
    decoder_->fill_unread(f32_to_f16(std::clamp(value, -kLargestPoison, kLargestPoison)));
  }

 private:
  static constexpr std::int64_t kLongestCall = 64;

  // The decoder reads a state's sequence while this lives.
  class Reads {
   public:
    Reads(PackagesTested& model, TestedState& state)
        : decoder_(*model.decoder_), sequence_(static_cast<PackageState&>(state).sequence) {
      sequence_ = decoder_.exchange(std::move(sequence_));
    }
    ~Reads() {
      decoder_.on_layer = {};
      sequence_ = decoder_.exchange(std::move(sequence_));
    }
    Reads(const Reads&) = delete;
    Reads& operator=(const Reads&) = delete;

   private:
    coreml::Decoder& decoder_;
    coreml::Sequence& sequence_;
  };

  std::vector<coreml::LayerRows> rows_of(TestedState& state) {
    const Reads scope(*this, state);
    return decoder_->rows();
  }

  // Empty: the package does not say which states hold them.
  std::vector<coreml::LayerRows> rows_if_known(TestedState& state) {
    try {
      return rows_of(state);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      return {};
    }
  }

  std::unique_ptr<coreml::Decoder> decoder_;
  TestedShape shape_;
};

}  // namespace package_model_details

std::unique_ptr<TestedModel> tested_packages(const std::string& path, const CoremlOptions& options) try {
  return std::make_unique<package_model_details::PackagesTested>(path, options);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
