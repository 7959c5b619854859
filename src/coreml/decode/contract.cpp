#include "coreml/decode/contract.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace contract_details {

bool is_whole(CoremlType type) { return type != CoremlType::f16 && type != CoremlType::f32; }

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += cat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

std::string list_of(std::string_view title, const std::vector<CoremlFeature>& features) {
  std::string text;
  for (const CoremlFeature& each : features)
    text += cat(text.empty() ? "" : ", ", each.name, " ", coreml_type_name(each.type), " ",
                shape_text(each.shape));
  return cat(title, " ", text.empty() ? "none" : text);
}

bool is_cache(const CoremlFeature& state) { return state.shape.size() >= 3; }

bool has_counter(const CoremlFunction& function) {
  return std::any_of(function.states.begin(), function.states.end(), [](const CoremlFeature& state) {
    return std::all_of(state.shape.begin(), state.shape.end(), [](std::int64_t size) { return size == 1; });
  });
}

std::size_t rank(const CoremlFeature& feature) { return feature.shape.size(); }

// Ids and a mask of ones have the same type and rank: only their names tell them apart.
bool is_named_mask(const CoremlFeature& input) {
  return input.name.find("mask") != input.name.npos || input.name.find("Mask") != input.name.npos;
}

// The most that an axis may have; -1: no limit.
std::int64_t most_of(const CoremlFeature& feature, std::size_t axis) {
  if (!feature.ranges.empty()) return feature.ranges[axis].second;
  std::int64_t most = feature.shape[axis];
  for (const auto& shape : feature.shapes) most = std::max(most, shape[axis]);
  return most;
}

bool grows(const CoremlFeature& feature, std::size_t axis) {
  return feature.shape[axis] < 0 || feature.shapes.size() > 1 ||
         (!feature.ranges.empty() && feature.ranges[axis].first != feature.ranges[axis].second);
}

[[noreturn]] void refuse_contract(const std::string& path, const CoremlFunction& function,
                                  std::string_view why) {
  throw Error(ErrorCode::unsupported,
              cat(path, ": ", why, "; function ", function.name, " has ", signature_of(function),
                  ". kvtide drives: ids [1, T] and a mask [1, text] with states that hold caches and a "
                  "counter (zenz); ids "
                  "[1, T] and a mask [1, 1, T, text] with caches (Llama, Mistral); input_ids, position_ids, "
                  "causal_mask "
                  "and current_pos, or a folder with meta.yaml (ANEMLL)"));
}

// A mask as long as the text, which may be fixed to no length.
Contract with_growing_mask(const CoremlFunction& function, const std::string& path) {
  Contract contract;
  for (const CoremlFeature& input : function.inputs) {
    if (rank(input) == 2 && is_whole(input.type) && !is_named_mask(input)) {
      contract.ids = input;
    } else {
      contract.mask = input;
    }
  }
  if (contract.ids.name.empty() || contract.mask.name.empty() || function.inputs.size() != 2)
    refuse_contract(path, function, "its inputs are not ids and a mask");
  const std::size_t mask_rank = rank(contract.mask);
  const bool counted = has_counter(function);
  contract.kind = counted ? ContractKind::counted : ContractKind::causal_mask;
  if (mask_rank != (counted ? 2u : 4u))
    refuse_contract(path, function,
                    counted ? "a counter among the states goes with a mask [1, text]"
                            : "without a counter among the states the mask has to be [1, 1, T, text]");
  if (!grows(contract.mask, mask_rank - 1))
    refuse_contract(
        path, function,
        cat("the mask ", quoted(contract.mask.name), " has one length, so it cannot be as long as the text"));
  contract.sizes = CallSizes(contract.ids, 1);
  contract.slots = slots_of(function);
  const std::int64_t most = most_of(contract.mask, mask_rank - 1);
  if (most > 0) contract.slots = std::min(contract.slots, most);
  return contract;
}

}  // namespace contract_details

using namespace contract_details;

CallSizes::CallSizes(const CoremlFeature& feature, std::size_t axis) {
  for (const auto& shape : feature.shapes) listed_.push_back(shape[axis]);
  std::sort(listed_.begin(), listed_.end());
  if (!feature.ranges.empty()) {
    least_ = feature.ranges[axis].first;
    most_ = feature.ranges[axis].second;
  } else {
    least_ = std::max<std::int64_t>(feature.shape[axis], 1);
    most_ = feature.shape[axis];  // -1: any number
  }
}

std::int64_t CallSizes::largest(std::int64_t most) const {
  if (!listed_.empty()) {
    const auto behind = std::upper_bound(listed_.begin(), listed_.end(), most);
    return behind == listed_.begin() ? 0 : *std::prev(behind);
  }
  const std::int64_t size = most_ < 0 ? most : std::min(most, most_);
  return size >= least_ ? size : 0;
}

const char* contract_name(ContractKind kind) {
  switch (kind) {
    case ContractKind::counted:
      return "ids, a mask and a counter";
    case ContractKind::causal_mask:
      return "ids and a causal mask";
    case ContractKind::positions:
      return "infer and prefill";
    case ContractKind::masks:
      return "masks and rotations";
  }
  return "";
}

std::string signature_of(const CoremlFunction& function) {
  return cat(list_of("inputs", function.inputs), "; ", list_of("states", function.states), "; ",
             list_of("outputs", function.outputs));
}

const CoremlFeature* feature_named(std::span<const CoremlFeature> features, std::string_view name) {
  for (const CoremlFeature& each : features)
    if (each.name == name) return &each;
  return nullptr;
}

std::vector<std::string> logits_of(const CoremlFunction& function) {
  std::map<int, std::string> numbered;
  for (const CoremlFeature& output : function.outputs) {
    if (output.name == "logits" || output.name == "output_logits") return {output.name};
    constexpr std::string_view kName = "logits";
    int number = 0;
    const char* end = output.name.data() + output.name.size();
    if (output.name.rfind(kName, 0) == 0 &&
        std::from_chars(output.name.data() + kName.size(), end, number).ptr == end)
      numbered[number] = output.name;
  }
  std::vector<std::string> names;
  for (const auto& [number, name] : numbered) names.push_back(name);
  return names;
}

std::int64_t slots_of(const CoremlFunction& function) {
  std::int64_t slots = 0;
  for (const CoremlFeature& state : function.states)
    if (is_cache(state)) slots = std::max(slots, state.shape[state.shape.size() - 2]);
  return slots;
}

Contract contract_of(const CoremlModel& model, const std::string& path) {
  const CoremlFunction& function = model.function();
  const bool positions = feature_named(function.inputs, "current_pos") != nullptr &&
                         feature_named(function.inputs, "causal_mask") != nullptr;
  Contract contract;
  if (positions) {
    contract.kind = ContractKind::positions;
    if (const auto* ids = feature_named(function.inputs, "input_ids")) contract.ids = *ids;
    if (contract.ids.name.empty())
      refuse_contract(path, function, "it is a part of a model: say the folder that holds meta.yaml");
    contract.mask = *feature_named(function.inputs, "causal_mask");
    contract.slots = contract.mask.shape.empty() ? 0 : contract.mask.shape.back();
  } else {
    contract = with_growing_mask(function, path);
  }
  contract.function = function.name;
  contract.logits = logits_of(function);
  if (contract.logits.empty() && !positions && function.outputs.size() == 1)
    contract.logits = {function.outputs[0].name};
  if (contract.logits.empty()) refuse_contract(path, function, "none of its outputs is named logits");
  if (contract.slots <= 0)
    refuse_contract(path, function,
                    positions ? "causal_mask has no length" : "no state is a cache [.., rows, dim]");
  return contract;
}

}  // namespace kvtide::coreml
