#include "coreml/decode/masked_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "base/refuse.h"
#include "base/text.h"
#include "coreml/decode/call_arrays.h"
#include "coreml/decode/packages_manifest.h"
#include "kvtide/error.h"
#include "kvtide/masks.h"

namespace kvtide::coreml {
namespace masked_decoder_details {

struct MaskedPart {
  std::string name;
  CoremlModel model;
  MaskedContract contract;
};

MaskedPart part_of(const std::string& path, CoremlModel model, MaskedContract contract) {
  return {std::filesystem::path(path).lexically_normal().filename().string(), std::move(model),
          std::move(contract)};
}

// The axis of tokens.
CallSizes sizes_of(const MaskedPart& part) {
  const CoremlFeature* tokens = feature_named(part.model.function().inputs, part.contract.tokens);
  return {*tokens, part.contract.embeds ? std::size_t{1} : std::size_t{2}};
}

class MaskedDecoder final : public Decoder {
 public:
  explicit MaskedDecoder(std::vector<MaskedPart> parts)
      : Decoder(parts.front().contract.slots), parts_(std::move(parts)) {
    check();
    for (const MaskedPart& part : parts_) sizes_.push_back(sizes_of(part));
  }

  ContractKind kind() const override { return ContractKind::masks; }
  std::int64_t size_of_call(std::int64_t left, std::int64_t most) const override {
    std::int64_t size = std::min(left, most);
    for (const CallSizes& sizes : sizes_) size = std::min(size, sizes.largest(size));
    for (const CallSizes& sizes : sizes_)
      if (sizes.largest(size) != size) return 0;
    return size;
  }
  std::vector<PartTime> parts() const override {
    std::vector<PartTime> times;
    for (const MaskedPart& part : parts_) {
      const CoremlReport report = part.model.report();
      times.push_back({part.name, report.calls, report.seconds});
    }
    return times;
  }
  std::int64_t state_bytes_copied() const override {
    std::int64_t bytes = 0;
    for (const MaskedPart& part : parts_) bytes += part.model.report().state_bytes_copied;
    return bytes;
  }
  std::map<std::string, std::string> identity() const override { return parts_.front().contract.identity; }
  std::vector<LayerRows> rows() const override;
  void fill_unread(std::uint16_t half) override;
  bool shows_layers() const override {
    return std::ssize(parts_) == parts_.front().contract.layers + 2 &&
           std::all_of(parts_.begin() + 1, parts_.end() - 1, [](const MaskedPart& part) {
             return part.contract.behind_layer == part.contract.first_layer + 1;
           });
  }
  std::int64_t weight_bytes() const override {
    std::int64_t bytes = 0;
    for (const MaskedPart& part : parts_) bytes += part.model.report().weight_bytes;
    return bytes;
  }

 private:
  void check() const;
  std::vector<float> call(std::span<const TokenId> ids, bool last) override;
  std::vector<CoremlState> empty_states() const override {
    std::vector<CoremlState> states;
    for (const MaskedPart& part : parts_) states.push_back(part.model.make_state());
    return states;
  }
  std::vector<CoremlState> states_with(std::int64_t count, const std::vector<LayerRows>& rows) const override;
  void show(int layer, CoremlArray& x) const;
  std::map<std::string, CoremlArray> inputs_of(const MaskedPart& part, std::int64_t tokens) const;

  std::vector<MaskedPart> parts_;
  std::vector<CallSizes> sizes_;
};

void MaskedDecoder::check() const {
  const MaskedContract& model = parts_.front().contract;
  const auto refuse_part = [](const MaskedPart& part, const std::string& why) {
    throw Error(ErrorCode::bad_format, cat(part.name, ": ", why));
  };
  int layer = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const MaskedContract& c = parts_[i].contract;
    if (c.attention_only)
      throw Error(ErrorCode::unsupported, cat(parts_[i].name,
                                              ": holds the attention of a layer alone; a program that "
                                              "computes the rest drives it (docs/coreml.md)"));
    if (c.model != model.model || c.layers != model.layers || c.width != model.width ||
        c.slots != model.slots || c.stream_scale != model.stream_scale)
      refuse_part(parts_[i], cat("is part of ", quoted(c.model), " with ", c.slots, " slots, and ",
                                 parts_.front().name, " of ", quoted(model.model), " with ", model.slots));
    if (c.embeds != (i == 0))
      refuse_part(parts_[i],
                  i == 0 ? "comes first and does not take ids" : "takes ids and does not come first");
    if (c.gives_logits != (i + 1 == parts_.size()))
      refuse_part(parts_[i],
                  c.gives_logits ? "gives logits and does not come last" : "comes last and gives no logits");
    if (c.first_layer != layer)
      refuse_part(parts_[i],
                  cat("begins with layer ", c.first_layer, "; what is before it ends with ", layer));
    layer = c.behind_layer;
  }
  if (layer != model.layers)
    refuse_part(parts_.back(), cat("ends behind layer ", layer, " of ", model.layers));
}

CoremlArray array_of_numbers(std::vector<std::int64_t> shape, std::span<const float> numbers) {
  CoremlFeature plain;
  return numbers_for(plain, std::move(shape), numbers);
}

std::map<std::string, CoremlArray> MaskedDecoder::inputs_of(const MaskedPart& part,
                                                            std::int64_t tokens) const {
  const MaskedContract& c = part.contract;
  std::map<std::string, CoremlArray> inputs;
  ChunkMask chunk;
  chunk.first = position();
  chunk.tokens = tokens;
  chunk.rows = c.slots;
  if (!c.write_mask.empty())
    inputs[c.write_mask] = array_of_numbers({1, 1, c.slots, tokens}, write_mask(chunk));
  for (const SeenMask& mask : c.masks) {
    chunk.attention_size = mask.window;
    inputs[mask.input] = array_of_numbers({1, 1, tokens, c.slots}, attention_mask(chunk));
  }
  for (const RopeInputs& rope : c.ropes) {
    std::vector<float> cosine, sine;
    for (std::int64_t t = 0; t < tokens; ++t)
      for (const double frequency : rope.frequencies) {
        const double angle = static_cast<double>(position() + t) * frequency;
        cosine.push_back(static_cast<float>(std::cos(angle) * rope.magnitude));
        sine.push_back(static_cast<float>(std::sin(angle) * rope.magnitude));
      }
    const auto half = static_cast<std::int64_t>(rope.frequencies.size());
    inputs[rope.cos] = array_of_numbers({tokens, half}, cosine);
    inputs[rope.sin] = array_of_numbers({tokens, half}, sine);
  }
  return inputs;
}

// x: [1, width, tokens, 1], as much of the stream as the packages keep.
void MaskedDecoder::show(int layer, CoremlArray& x) const {
  const auto width = x.shape[1], tokens = x.shape[2];
  const auto scale = static_cast<float>(parts_.front().contract.stream_scale);
  const std::vector<float> held = as_floats(x);
  std::vector<float> stream(held.size());
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t i = 0; i < width; ++i)
      stream[static_cast<std::size_t>(t * width + i)] =
          held[static_cast<std::size_t>(i * tokens + t)] / scale;
  const std::vector<float> shown = stream;
  on_layer(layer, stream);
  if (stream == shown) return;  // and x keeps its bits
  std::vector<float> given(held.size());
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t i = 0; i < width; ++i)
      given[static_cast<std::size_t>(i * tokens + t)] =
          stream[static_cast<std::size_t>(t * width + i)] * scale;
  x = array_of_numbers(x.shape, given);
}

std::vector<float> MaskedDecoder::call(std::span<const TokenId> ids, bool last) {
  const auto tokens = static_cast<std::int64_t>(ids.size());
  CoremlArray x = ids_array({1, tokens}, ids);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    MaskedPart& part = parts_[i];
    if (i > 0 && on_layer && shows_layers()) show(static_cast<int>(i) - 1, x);
    if (!last && part.contract.gives_logits && part.contract.caches.empty())
      return {};  // a head of its own has nothing to remember
    auto inputs = inputs_of(part, tokens);
    inputs[part.contract.tokens] = std::move(x);
    x = std::move(part.model.predict(inputs, &states()[i]).at(part.contract.result));
  }
  if (last && on_logits) on_logits(x, tokens);
  return last ? last_row(x, parts_.back().contract.result) : std::vector<float>();
}

// The first `count` rows of every head of `from`, at the beginning of those of `to`; both f16 [1, heads, rows, width].
void copy_rows(const CoremlArray& from, std::int64_t count, CoremlArray& to) {
  const auto row = static_cast<std::size_t>(from.shape[3]) * 2;
  for (std::int64_t head = 0; head < from.shape[1]; ++head)
    std::memcpy(to.bytes.data() + static_cast<std::size_t>(head * to.shape[2]) * row,
                from.bytes.data() + static_cast<std::size_t>(head * from.shape[2]) * row,
                static_cast<std::size_t>(count) * row);
}

std::vector<LayerRows> MaskedDecoder::rows() const {
  std::vector<LayerRows> layers;
  const auto held = [&](const CoremlArray& state) {
    CoremlArray rows{state.type, state.shape, {}};
    rows.shape[2] = position();
    rows.bytes.resize(static_cast<std::size_t>(state.shape[1] * position() * state.shape[3]) * 2);
    copy_rows(state, position(), rows);
    return rows;
  };
  for (std::size_t i = 0; i < parts_.size(); ++i)
    for (const LayerCache& cache : parts_[i].contract.caches)
      layers.push_back(
          {cache.layer, held(states()[i].read(cache.keys)), held(states()[i].read(cache.values))});
  return layers;
}

void MaskedDecoder::fill_unread(std::uint16_t half) {
  for (std::size_t i = 0; i < parts_.size(); ++i)
    for (const LayerCache& cache : parts_[i].contract.caches)
      for (const std::string& name : {cache.keys, cache.values}) {
        CoremlArray state = states()[i].read(name);
        auto* halves = reinterpret_cast<std::uint16_t*>(state.bytes.data());
        const std::int64_t slots = state.shape[2], width = state.shape[3];
        for (std::int64_t head = 0; head < state.shape[1]; ++head)
          std::fill(halves + (head * slots + position()) * width, halves + (head + 1) * slots * width, half);
        states()[i].write(name, state);
      }
}

std::vector<CoremlState> MaskedDecoder::states_with(std::int64_t count,
                                                    const std::vector<LayerRows>& rows) const {
  std::vector<CoremlState> states;
  std::size_t layer = 0;
  for (const MaskedPart& part : parts_) {
    states.push_back(part.model.make_state());
    for (const LayerCache& cache : part.contract.caches) {
      if (layer == rows.size() || rows[layer].layer != cache.layer)
        refuse(cat("there are no rows of layer ", cache.layer));
      for (const auto& [name, from] :
           {std::pair(&cache.keys, &rows[layer].keys), std::pair(&cache.values, &rows[layer].values)}) {
        CoremlArray state = states.back().read(*name);
        if (from->type != CoremlType::f16 || from->shape.size() != 4 || from->shape[0] != 1 ||
            from->shape[1] != state.shape[1] || from->shape[2] < count || from->shape[3] != state.shape[3])
          refuse(cat("rows of layer ", cache.layer, " are for other heads than those of ", part.name,
                     ", which has ", state.shape[1], " of ", state.shape[3]));
        copy_rows(*from, count, state);
        states.back().write(*name, state);
      }
      ++layer;
    }
  }
  if (layer != rows.size())
    refuse(cat("there are rows of ", rows.size(), " layers, and the packages have ", layer));
  return states;
}

std::unique_ptr<Decoder> decoder_of(std::vector<MaskedPart> parts) {
  return std::make_unique<MaskedDecoder>(std::move(parts));
}

}  // namespace masked_decoder_details

using namespace masked_decoder_details;

std::unique_ptr<Decoder> open_masked_decoder(const std::string& path, CoremlModel model,
                                             MaskedContract contract) {
  std::vector<MaskedPart> parts;
  parts.push_back(part_of(path, std::move(model), std::move(contract)));
  return decoder_of(std::move(parts));
}

std::unique_ptr<Decoder> open_masked_folder(const std::string& folder, const CoremlOptions& options) {
  std::vector<MaskedPart> parts;
  for (const std::string& path : read_packages(folder)) {
    CoremlModel model(path, options);
    auto contract = masked_contract_of(model, path);
    if (!contract)
      throw Error(ErrorCode::bad_format, cat(path, ": has no ", kContractKey,
                                             " in its metadata; kvtide coreml "
                                             "export writes it"));
    parts.push_back(part_of(path, std::move(model), std::move(*contract)));
  }
  return decoder_of(std::move(parts));
}

}  // namespace kvtide::coreml
