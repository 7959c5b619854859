#include "kvtide/validate.h"

#include "eval/filler.h"
#include "model/loaded_model.h"

namespace kvtide {
namespace {

bool is_float(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::bf16; }

bool has_integers(const LoadedModel& model) {
  for (int i = 0; i < static_cast<int>(model.config.layers.size()); ++i) {
    const LayerWeights& w = model.weights->layer(i);
    for (const WeightMatrix* m : {&w.query, &w.key, &w.value, &w.output, &w.up, &w.down})
      if (!is_float(m->dtype)) return true;
  }
  return !is_float(model.weights->head().dtype);
}

}  // namespace

ValidateOptions usual_gates(const Model& model, const SessionOptions& options) {
  ValidateOptions out;
  if (!options.exact) out.gate = out.apart_gate = out.row_gate = 0.999;
  const bool coarse_rows = options.key_type == KvType::q8_0 || options.value_type == KvType::q8_0;
  if (coarse_rows || (!options.exact && has_integers(model.internals()))) {
    out.gate = out.row_gate = 0.97;
    out.apart_gate = 0.9;
  }
  const Tokenizer& tokenizer = model.tokenizer();
  for (std::size_t id = 0; id < tokenizer.size(); ++id)
    if (tokenizer.piece(static_cast<TokenId>(id)).empty()) out.special.push_back(static_cast<TokenId>(id));
  for (const auto& id : {tokenizer.bos(), tokenizer.eos()})
    if (id) out.special.push_back(*id);
  return out;
}

std::vector<TokenId> validation_text(const Model& model, std::int64_t tokens) {
  const Tokenizer& tokenizer = model.tokenizer();
  std::vector<TokenId> out;
  if (tokenizer.adds_bos() && tokenizer.bos()) out.push_back(*tokenizer.bos());
  try {
    const std::vector<TokenId> prose = filler_prose(tokenizer, tokens);
    out.insert(out.end(), prose.begin(), prose.end());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    for (std::int64_t i = 0; i < tokens; ++i)
      out.push_back(static_cast<TokenId>((i * 7919 + 17) % model.vocabulary()));
  }
  out.resize(static_cast<std::size_t>(tokens));
  return out;
}

}  // namespace kvtide
