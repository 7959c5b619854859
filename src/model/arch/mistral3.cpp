// mistral3.cpp: Ministral 3, and the text part of Mistral 3 (Mistral Small 3.1 and later). What differs from
// Llama: queries of later positions are longer, by the length of the context that was trained first. GGUF files
// order the rows of queries and keys as Llama's do.
#include "base/text.h"
#include "model/arch/architectures.h"
#include "model/arch/tensor_names.h"
#include "model/config/folder_config.h"
#include "model/config/gguf_config.h"

namespace kvtide::mistral3 {
namespace {

void adjust(const GgufFile& file, ModelConfig& config) {
  config.rope_interleaved = true;
  read_one_window(file, config);
  const double rate = read_real(file, "attention.temperature_scale", 0.0, 1e3, 0.0);
  if (rate == 0.0) return;
  config.query_growth = {
      rate, read_count(file, "attention.temperature_length", 1, std::int64_t{1} << 31,
                       read_count(file, "rope.scaling.original_context_length", 1, std::int64_t{1} << 31))};
}

void read_text_model(const JsonFields& json, ModelConfig& config) {
  read_llama_like(json, config);
  require_silu(json);
  config.ropes = {read_folder_rope(json, config, 1e6)};
  read_windows(json, config, 0);
  const auto rope = json.child("rope_parameters");
  if (!rope || !rope->has("llama_4_scaling_beta")) return;
  const double rate = rope->real("llama_4_scaling_beta", 0.0, 1e3);
  if (rate > 0.0)
    config.query_growth = {rate, rope->count("original_max_position_embeddings", 1, std::int64_t{1} << 31)};
}

// A model of text and images keeps what concerns the text apart.
void read(const JsonFields& json, ModelConfig& config) {
  const auto text = json.child("text_config");
  read_text_model(text ? *text : json, config);
}

constexpr std::string_view kTypes[] = {"ministral3", "mistral3"};
constexpr TensorRule kOfTwoParts[] = {{Role::head, "language_model.lm_head.weight"}};
constexpr auto kFolder = joined(kOfTwoParts, kLlamaFolderTensors);
constexpr std::string_view kPrefixes[] = {"model.", "language_model.model.", "model.language_model."};

}  // namespace
}  // namespace kvtide::mistral3

namespace kvtide {

const Architecture kMistral3{"mistral3",      &mistral3::adjust, kGgufTensors,       mistral3::kTypes,
                             &mistral3::read, mistral3::kFolder, mistral3::kPrefixes};

}  // namespace kvtide
