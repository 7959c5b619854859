// known_heads.cpp: the head table of a model, without measuring: shipped with the library, or measured before.
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "kvtide/error.h"
#include "kvtide/heads.h"
#include "model/heads_file.h"
#include "model/identity.h"
#include "model/loaded_model.h"
#include "model/shipped_heads.h"

namespace kvtide {
namespace {

std::string hash_of(const Model& model, const std::string& cache) {
  return model_identity(model, cache).at("model");
}

std::string remembered_file(const std::string& cache, const std::string& hash) {
  return cat(cache, "/heads-", hash, ".tsv");
}

}  // namespace

std::optional<HeadTable> known_heads(const Model& model, const std::string& cache) {
  const std::string hash = hash_of(model, cache);
  for (const ShippedHeads& shipped : shipped_head_texts())
    if (shipped.model == hash)
      return within_two_thirds(parse_heads(shipped.table, "the shipped head table"), model);
  if (cache.empty()) return std::nullopt;
  try {
    return within_two_thirds(read_heads(remembered_file(cache, hash)), model);
  } catch (const Error&) {  // not there, or not what it should be: it is measured again
    return std::nullopt;
  }
}

void remember_heads(const Model& model, const std::string& cache, const HeadTable& table) {
  if (cache.empty()) return;
  const std::string text = heads_text(table);
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(text))};
  PosixFiles files;
  try {
    save_file(files, remembered_file(cache, hash_of(model, cache)), pieces);
  } catch (const Error&) {  // it only saves time
  }
}

HeadTable within_two_thirds(HeadTable table, const Model& model) {
  const ModelConfig& config = model.internals().config;
  const auto kept = attention_layers(config);
  const float full_from = ProceduralOptions{}.full_from;
  std::vector<float*> copying;
  std::size_t heads = 0;
  for (std::size_t i = 0; i < table.needs.size(); ++i) {
    const std::size_t attention = i / static_cast<std::size_t>(table.kv_heads);
    if (attention >= kept.size()) break;  // of another model: refused where the memory is made
    if (config.layers[static_cast<std::size_t>(kept[attention])].window) continue;
    ++heads;
    if (table.needs[i].copies() >= full_from) copying.push_back(&table.needs[i].induction);
  }
  std::stable_sort(copying.begin(), copying.end(), [](const float* a, const float* b) { return *a > *b; });
  for (std::size_t i = heads * 2 / 3; heads > 1 && i < copying.size(); ++i)
    *copying[i] = std::nextafter(full_from, 0.0f);
  return table;
}

}  // namespace kvtide
