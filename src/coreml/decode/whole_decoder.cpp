#include "coreml/decode/whole_decoder.h"

#include <filesystem>
#include <map>
#include <utility>

#include "coreml/decode/cache_layout.h"
#include "coreml/decode/call_arrays.h"
#include "coreml/decode/chunked_decoder.h"
#include "coreml/decode/masked_decoder.h"

namespace kvtide::coreml {
namespace whole_decoder_details {

class WholeDecoder final : public Decoder {
 public:
  WholeDecoder(std::string name, CoremlModel model, Contract contract)
      : Decoder(contract.slots),
        name_(std::move(name)),
        model_(std::move(model)),
        contract_(std::move(contract)) {}

  ContractKind kind() const override { return contract_.kind; }
  std::int64_t size_of_call(std::int64_t left, std::int64_t most) const override {
    return contract_.sizes.largest(std::min(left, most));
  }
  std::vector<PartTime> parts() const override {
    const CoremlReport report = model_.report();
    return {{name_, report.calls, report.seconds}};
  }
  std::int64_t state_bytes_copied() const override { return model_.report().state_bytes_copied; }
  std::int64_t weight_bytes() const override { return model_.report().weight_bytes; }
  std::vector<LayerRows> rows() const override {
    return rows_in(sequence().states.front(), layout(), 0, position());
  }

  void truncate(std::int64_t count) override {
    states().front() = model_.make_state_from(states().front(), count, contract_.function);
    Decoder::truncate(count);
  }
  void fill_unread(std::uint16_t half) override { fill_rows(states().front(), layout(), position(), half); }

 private:
  std::vector<float> call(std::span<const TokenId> ids, bool last) override {
    const auto count = static_cast<std::int64_t>(ids.size());
    const std::int64_t end = position() + count;
    std::map<std::string, CoremlArray> inputs;
    inputs[contract_.ids.name] = ids_array({1, count}, ids);
    if (contract_.kind == ContractKind::counted) {
      const std::vector<float> ones(static_cast<std::size_t>(end), 1.0f);
      inputs[contract_.mask.name] = numbers_for(contract_.mask, {1, end}, ones);
    } else {
      inputs[contract_.mask.name] = causal_mask(count, position(), end);
    }
    const auto outputs = model_.predict(inputs, &states().front(), contract_.function);
    if (!last) return {};
    const std::string& name = contract_.logits.front();
    if (on_logits) on_logits(outputs.at(name), count);
    return last_row(outputs.at(name), name);
  }
  std::vector<CoremlState> empty_states() const override {
    std::vector<CoremlState> states;
    states.push_back(model_.make_state(contract_.function));
    return states;
  }

  std::vector<CoremlState> states_with(std::int64_t count,
                                       const std::vector<LayerRows>& rows) const override {
    std::vector<CoremlState> states = empty_states();
    put_rows(states.front(), layout(), rows, count);
    return states;
  }
  CacheLayout layout() const { return cache_layout_of(model_.function(contract_.function).states, name_); }

  std::string name_;
  CoremlModel model_;
  Contract contract_;
};

}  // namespace whole_decoder_details

std::unique_ptr<Decoder> open_whole_decoder(const std::string& path, const CoremlOptions& options) {
  CoremlModel model(path, options);
  if (auto masks = masked_contract_of(model, path))
    return open_masked_decoder(path, std::move(model), std::move(*masks));
  Contract contract = contract_of(model, path);
  if (contract.kind == ContractKind::positions) return open_single_chunk(path, options);
  std::string name = std::filesystem::path(path).lexically_normal().filename().string();
  return std::make_unique<whole_decoder_details::WholeDecoder>(std::move(name), std::move(model),
                                                               std::move(contract));
}

}  // namespace kvtide::coreml
