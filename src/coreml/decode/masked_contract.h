// masked_contract.h: what a package that kvtide exported says of itself: which part of a model it holds, and what its inputs are.
//
// The contract of the shards (docs/shards.md): a call has no number that is its position. Masks say it: `write_mask` has a single
// 1 in the column of each token, at the slot that it goes to, and each attention mask shows a token the slots that it sees.
// Rotations come from outside, too. The text of this stands in the package's metadata, so a package can be driven that was
// copied, renamed or compiled.
// Errors: bad_format: metadata that says something else than the functions of its package.
// Thread rules: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kvtide/coreml.h"
#include "kvtide/types.h"

namespace kvtide::coreml {

inline constexpr const char* kContractKey = "co.kvtide.contract";

// [1, 1, T, S] of 0 and -1e4.
struct SeenMask {
  std::string input;
  std::optional<std::int64_t> window;  // newest slots that a token sees, its own included; nullopt: all
};

// Rows [T, half] at the positions of the tokens.
struct RopeInputs {
  std::string cos, sin;
  double magnitude = 1.0;
  std::vector<double> frequencies;  // radians per position
};

// States [1, kv_heads, S, head_dim] of one layer.
struct LayerCache {
  int layer = 0;
  std::string keys, values;
  int rope = 0;  // of the model
};

struct MaskedContract {
  std::string model, family;
  std::map<std::string, std::string> identity;  // of the model, as its snapshots have it (model/identity.h)
  std::int64_t layers = 0;                      // of the whole model
  int first_layer = 0, behind_layer = 0;        // that the package holds
  bool embeds = false, gives_logits = false;
  bool attention_only = false;  // what follows attention in its layers is elsewhere
  std::int64_t width = 0, vocabulary = 0, slots = 0, context_length = 0;
  double stream_scale = 1.0;  // of the residual stream between packages
  std::optional<TokenId> bos;
  std::vector<TokenId> eos;
  std::string tokens;      // the input of ids [1, T] or of activations [1, D, T, 1]
  std::string write_mask;  // [1, 1, S, T]; empty: it takes none
  std::string result;      // [1, T, vocabulary] or [1, D, T, 1]
  std::vector<SeenMask> masks;
  std::vector<RopeInputs> ropes;
  std::vector<LayerCache> caches;
  std::vector<std::string>
      carried;  // states that every call overwrites: a token is not taken back by its slot alone
};

std::string contract_text(const MaskedContract& contract);
// Of a package with one function. nullopt: it says nothing. `path`: for messages.
std::optional<MaskedContract> masked_contract_of(const CoremlModel& model, const std::string& path);

}  // namespace kvtide::coreml
