#include "kvtide/validate.h"

#include <algorithm>

#include "base/out_of_memory.h"
#include "base/text.h"
#include "coreml/decode/folder_tokenizer.h"
#include "coreml/decode/packages_at.h"
#include "eval/filler.h"
#include "model/loaded_model.h"
#include "shards/tokenizer_export.h"
#include "tensor/element_type.h"

namespace kvtide {
namespace {

bool is_float(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::bf16; }

bool all_floats(const LayerWeights& w) {
  std::vector<const WeightMatrix*> matrices = {&w.query, &w.key, &w.value, &w.output,
                                               &w.gate,  &w.up,  &w.down};
  if (w.cca) matrices.push_back(&w.cca->value_delayed);
  if (w.experts)
    for (const Expert& expert : w.experts->experts)
      matrices.insert(matrices.end(), {&expert.gate, &expert.up, &expert.down});
  return std::all_of(matrices.begin(), matrices.end(),
                     [](const WeightMatrix* m) { return is_float(m->dtype); });
}

std::vector<TokenId> markers(const Tokenizer& tokenizer) {
  std::vector<TokenId> out;
  for (std::size_t id = 0; id < tokenizer.size(); ++id)
    if (tokenizer.piece(static_cast<TokenId>(id)).empty()) out.push_back(static_cast<TokenId>(id));
  for (const auto& id : {tokenizer.bos(), tokenizer.eos()})
    if (id) out.push_back(*id);
  return out;
}

constexpr double kExact = 0.9999, kBf16 = 0.999, kCoarse = 0.97, kCoarseApart = 0.9;

}  // namespace

bool has_float_weights(const Model& model) try {
  const LoadedModel& loaded = model.internals();
  for (int i = 0; i < static_cast<int>(loaded.config.layers.size()); ++i)
    if (!all_floats(loaded.weights->layer(i))) return false;
  return is_float(loaded.weights->head().dtype);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

ValidateOptions usual_gates(const Model& model, const SessionOptions& options) try {
  ValidateOptions out;
  const bool floats = has_float_weights(model);
  const auto coarse = [](ElementType type) { return type == ElementType::q8_0 || type == ElementType::q4_0; };
  const bool coarse_rows = coarse(options.key_type) || coarse(options.value_type);
  out.gate = out.apart_gate = out.row_gate = options.exact ? kExact : kBf16;
  out.arithmetic = options.exact ? "f32 throughout" : "attention in bf16";
  if (!options.exact && !floats) out.arithmetic += ", products of 8-bit integers";
  out.arithmetic +=
      cat(", keys ", element_type_name(options.key_type), ", values ", element_type_name(options.value_type));
  if (coarse_rows || (!options.exact && !floats)) {
    out.gate = out.row_gate = kCoarse;
    out.apart_gate = kCoarseApart;
  }
  out.special = markers(model.tokenizer());
  return out;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

ValidateOptions usual_shard_gates(const std::string& folder, bool against_original) try {
  const ShardManifest manifest = read_manifest(folder);
  ValidateOptions out;
  out.gate = out.apart_gate = out.row_gate = kExact;
  out.arithmetic = cat("weights ", manifest.weights, ", activations f32, keys and values f16");
  const bool integers =
      std::any_of(manifest.shards.begin(), manifest.shards.end(), [](const ShardEntry& shard) {
        return std::any_of(shard.tensors.begin(), shard.tensors.end(),
                           [](const TensorEntry& tensor) { return tensor.dtype == "I8"; });
      });
  if (integers && against_original) {
    out.gate = out.row_gate = kCoarse;
    out.apart_gate = kCoarseApart;
  }
  out.special = markers(open_shard_tokenizer(folder, manifest));
  return out;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

ValidateOptions usual_package_gates(const std::string& path) try {
  ValidateOptions out;
  const bool compressed = coreml::has_compressed_weights(path);
  out.gate = out.row_gate = compressed ? kCoarse : kBf16;
  out.apart_gate = compressed ? kCoarseApart : kBf16;
  out.stream_rounding = 2e-3;  // four roundings to f16
  out.arithmetic = cat(compressed ? "compressed weights" : "weights f16", ", values rounded to f16");
  return out;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::vector<TokenId> validation_text(const Tokenizer& tokenizer, std::int64_t tokens) try {
  std::vector<TokenId> out;
  if (tokenizer.adds_bos() && tokenizer.bos()) out.push_back(*tokenizer.bos());
  try {
    const std::vector<TokenId> prose = filler_prose(tokenizer, tokens);
    out.insert(out.end(), prose.begin(), prose.end());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    for (std::int64_t i = 0; i < tokens; ++i)
      out.push_back(static_cast<TokenId>((i * 7919 + 17) % static_cast<std::int64_t>(tokenizer.size())));
  }
  out.resize(static_cast<std::size_t>(tokens));
  return out;
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::vector<TokenId> validation_text(const Model& model, std::int64_t tokens) try {
  return validation_text(model.tokenizer(), tokens);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::vector<TokenId> validation_text_of_shards(const std::string& folder, std::int64_t tokens) try {
  return validation_text(open_shard_tokenizer(folder, read_manifest(folder)), tokens);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

std::vector<TokenId> validation_text_of_model(const std::string& path, std::int64_t tokens) try {
  return validation_text(coreml::tokenizer_of(path), tokens);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
