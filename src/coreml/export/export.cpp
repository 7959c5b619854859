// export.cpp: a model that kvtide loads as stateful Core ML packages (kvtide/coreml.h).

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/new_folder.h"
#include "base/out_of_memory.h"
#include "base/refuse.h"
#include "base/text.h"
#include "coreml/decode/packages_manifest.h"
#include "coreml/export/model_part.h"
#include "coreml/write/package_writer.h"
#include "kernels/kernels.h"
#include "kvtide/coreml.h"
#include "kvtide/error.h"
#include "model/checkpoint.h"
#include "model/identity.h"

namespace kvtide::coreml {
namespace export_details {

namespace fs = std::filesystem;

constexpr std::int64_t kUsualSlots = 2048;
constexpr std::int64_t kMostSlots = std::int64_t{1} << 20;

struct NamedPart {
  std::string name;
  ModelPart part;
};

constexpr const char* kConvolved = "zaya";  // of which the attention of every layer is written, by itself

bool is_exported(const ModelConfig& config) {
  if (config.architecture == kConvolved) return true;
  if (carries(config) || config.scaled_residual || config.experts || config.query_growth ||
      !config.pre_norms || config.heads_normed_together)
    return false;
  for (const char* known : {"llama", "qwen2", "qwen3", "gemma3", "gpt2"})
    if (config.architecture == known) return true;
  return false;
}

// With as many digits as the largest number below `count`.
std::string padded(int number, int count) {
  const std::string text = std::to_string(number);
  return std::string(std::to_string(count - 1).size() - text.size(), '0') + text;
}

// Where nothing but attention is written: a package a layer.
std::vector<NamedPart> attention_parts(int layers, int chunks) {
  if (chunks != CoremlExport::kEveryLayer)
    throw Error(ErrorCode::unsupported,
                cat("of the family ", kConvolved,
                    " only attention is written, a package for each layer (--per-layer): its "
                    "experts are chosen token by token"));
  std::vector<NamedPart> parts;
  for (int layer = 0; layer < layers; ++layer)
    parts.push_back(
        {cat("attention_", padded(layer, layers), ".mlpackage"), {false, layer, layer + 1, false, true}});
  return parts;
}

// One package; or the embedding, the layers in `chunks` packages that differ by one layer at most, and the head.
std::vector<NamedPart> parts_of(int layers, int chunks) {
  if (chunks == 0) return {{"", {true, 0, layers, true}}};
  if (chunks == CoremlExport::kEveryLayer) chunks = layers;
  if (chunks < 1 || chunks > layers)
    refuse(cat("a model of ", layers, " layers cannot be split into ", chunks, " chunks"));
  std::vector<NamedPart> parts = {{"embedding.mlpackage", {true, 0, 0, false}}};
  for (int i = 0; i < chunks; ++i)
    parts.push_back({cat("layers_", padded(i, chunks), ".mlpackage"),
                     {false, layers * i / chunks, layers * (i + 1) / chunks, false}});
  parts.push_back({"head.mlpackage", {false, layers, layers, true}});
  return parts;
}

TokenSizes sizes_of(const CoremlExport& options) {
  constexpr std::int64_t kMostTokens = 4096;
  TokenSizes sizes{options.least_tokens, options.most_tokens, options.token_sizes};
  std::sort(sizes.listed.begin(), sizes.listed.end());
  sizes.listed.erase(std::unique(sizes.listed.begin(), sizes.listed.end()), sizes.listed.end());
  if (!sizes.listed.empty()) sizes.least = sizes.listed.front(), sizes.most = sizes.listed.back();
  if (sizes.least != 1 || sizes.most < 1 || sizes.most > kMostTokens)
    refuse(cat("calls of ", sizes.least, " to ", sizes.most,
               " tokens: they begin with 1, since text is written a token at a "
               "time, and end with ",
               kMostTokens, " at most"));
  return sizes;
}

std::int64_t slots_for(const ModelConfig& config, const CoremlExport& options) {
  const std::int64_t learned = config.learned_positions ? config.context_length : kMostSlots;
  const std::int64_t slots = options.slots == 0 ? std::min(kUsualSlots, learned) : options.slots;
  if (slots < 1 || slots > kMostSlots) refuse(cat("a state has 1 to ", kMostSlots, " slots, not ", slots));
  if (slots > learned)
    refuse(cat(slots, " slots are more than the ", learned, " positions that this model has learned"));
  return slots;
}

// A folder that an export may take the place of: nothing else is removed.
void check_replaced(const std::string& path) {
  if (fs::exists(path) && !fs::exists(path + "/Manifest.json") && !is_packages_folder(path))
    refuse(cat(path, ": is neither a package nor a folder of packages, and is not replaced"));
}

class Exporter {
 public:
  Exporter(const Checkpoint& checkpoint, const CoremlExport& options)
      : options_(options),
        kernels_(best_kernels()),
        pool_(ThreadPool::count(options.threads)),
        weights_(checkpoint, pool_),
        constants_(kernels_, pool_, options.weights),
        model_{checkpoint.config(), weights_, constants_, sizes_of(options),
               contract_of(checkpoint, options)} {}

  void one(const std::string& path, const ModelPart& part, bool replaces) {
    if (options_.on_package) options_.on_package(fs::path(path).lexically_normal().filename().string());
    Package package = part_package(model_, part);
    Description& d = package.description;
    d.short_description = cat(model_.contract.model, ", ", describe(part));
    const auto add = [&](const char* key, std::string text) {
      d.metadata.emplace_back(key, std::move(text));
    };
    add("context_length", std::to_string(model_.contract.context_length));
    if (model_.contract.bos) add("bos_token_id", std::to_string(*model_.contract.bos));
    std::string ends;
    for (const TokenId id : model_.contract.eos) ends += cat(ends.empty() ? "" : ",", id);
    if (!ends.empty()) add("eos_token_ids", ends);
    write_package(package, path, replaces);
  }

 private:
  static std::string describe(const ModelPart& part) {
    std::string text = part.embeds ? "embedding" : "";
    if (part.first_layer < part.behind_layer)
      text += cat(text.empty() ? "" : ", ", part.attention_only ? "attention of layers " : "layers ",
                  part.first_layer, " to ", part.behind_layer - 1);
    if (part.gives_logits) text += cat(text.empty() ? "" : ", ", "head");
    return text;
  }

  static MaskedContract contract_of(const Checkpoint& checkpoint, const CoremlExport& options) {
    const ModelConfig& config = checkpoint.config();
    MaskedContract contract;
    contract.model = checkpoint.name().empty() ? config.architecture : checkpoint.name();
    contract.family = config.architecture;
    contract.layers = static_cast<std::int64_t>(config.layers.size());
    contract.width = config.width;
    contract.vocabulary = config.vocab;
    contract.slots = slots_for(config, options);
    contract.context_length = config.context_length;
    contract.stream_scale = stream_scale_of(config);
    const Tokenizer tokenizer(checkpoint.vocabulary());
    contract.identity = model_identity(checkpoint, tokenizer);
    contract.bos = tokenizer.bos();
    for (TokenId id = 0; id < static_cast<TokenId>(tokenizer.size()); ++id)
      if (tokenizer.ends_text(id) && id < config.vocab) contract.eos.push_back(id);
    return contract;
  }

  const CoremlExport& options_;
  const Kernels& kernels_;
  ThreadPool pool_;
  Weights weights_;
  WeightConstants constants_;
  ExportedModel model_;
};

void export_packages(const std::string& model, const std::string& path, const CoremlExport& options) {
  if (path.empty()) refuse("an export needs a path");
  if (options.replace) check_replaced(path);
  const auto checkpoint = open_checkpoint(model);
  const std::string& family = checkpoint->config().architecture;
  if (!is_exported(checkpoint->config()))
    throw Error(ErrorCode::unsupported, cat(model, ": models of the family ", family,
                                            " are not written as Core ML packages; the families that are: "
                                            "llama, qwen2, qwen3, gemma3, gpt2; and of zaya the attention"));
  const int layers = static_cast<int>(checkpoint->config().layers.size());
  const auto parts =
      family == kConvolved ? attention_parts(layers, options.chunks) : parts_of(layers, options.chunks);
  if (parts.size() == 1) {
    NewFolder(path, "packages", options.replace);  // before the weights are loaded
    return Exporter(*checkpoint, options).one(path, parts.front().part, options.replace);
  }
  NewFolder target(path, "packages", options.replace);
  Exporter exporter(*checkpoint, options);
  std::vector<std::string> names;
  for (const auto& [name, part] : parts) {
    exporter.one(cat(target.path(), "/", name), part, false);
    names.push_back(name);
  }
  const std::string text = packages_text(names);
  const auto bytes = std::as_bytes(std::span(text));
  PosixFiles files;
  save_file(files, cat(target.path(), "/", kPackagesManifest), {&bytes, 1});
  target.put_in_place();
}

}  // namespace export_details
}  // namespace kvtide::coreml

namespace kvtide {

void export_coreml(const std::string& model, const std::string& path, const CoremlExport& options) try {
  coreml::export_details::export_packages(model, path, options);
} catch (const std::bad_alloc&) {
  throw_out_of_memory();
}

}  // namespace kvtide
