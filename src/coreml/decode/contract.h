// contract.h: how a package wants to be called that holds a whole language model: which input is the ids, which the mask, what
// the mask says, where the logits are.
//
// Known are: ids and a mask of 0 and 1 as long as the text, with a counter among the states (zenz, GPT-2); ids and a causal
// mask [1, 1, T, text] that says the position by its length (Apple's script for Llama and Mistral); and functions infer and
// prefill of fixed lengths that take position_ids, causal_mask and current_pos (ANEMLL). What kvtide itself exports says so in its
// metadata (masked_contract.h).
// Errors: unsupported, with what the package has and what each contract expects.
// Thread rules: plain values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvtide/coreml.h"

namespace kvtide::coreml {

// How many tokens one call takes.
class CallSizes {
 public:
  CallSizes() = default;
  // Of one axis of an input.
  CallSizes(const CoremlFeature& feature, std::size_t axis);

  std::int64_t largest(std::int64_t most) const;  // not above `most`; 0: there is none

 private:
  std::int64_t least_ = 1, most_ = 1;  // of a range
  std::vector<std::int64_t> listed_;   // or these only
};

enum class ContractKind { counted, causal_mask, positions, masks };
const char* contract_name(ContractKind kind);

struct Contract {
  ContractKind kind = ContractKind::counted;
  std::string function;
  CoremlFeature ids, mask;
  std::vector<std::string> logits;  // one, or parts of the vocabulary in their order
  CallSizes sizes;
  std::int64_t slots = 0;  // the longest text
};

// Of a package that holds all of a model, from ids to logits.
Contract contract_of(const CoremlModel& model, const std::string& path);

// Inputs, states and outputs with their shapes, for messages.
std::string signature_of(const CoremlFunction& function);
const CoremlFeature* feature_named(std::span<const CoremlFeature> features, std::string_view name);
// Outputs that are logits: `logits`, or `logits1`, `logits2`, .. in that order; empty: there are none.
std::vector<std::string> logits_of(const CoremlFunction& function);
// Rows of the caches among the states: the last axis but one. 0: there is no cache.
std::int64_t slots_of(const CoremlFunction& function);

}  // namespace kvtide::coreml
