#include "cli/commands/inspect_folder.h"

#include <map>

#include "base/json/json_value.h"
#include "base/text.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/tensor_list.h"
#include "cli/output/kv_cost.h"
#include "cli/output/terminal.h"
#include "formats/safetensors_files.h"
#include "formats/text_file.h"
#include "kvtide/error.h"
#include "model/read_config.h"

namespace kvtide {
namespace {

constexpr std::int64_t kContexts[] = {4096, 32768, 100000};
constexpr std::size_t kLongestString = 72;

// The cost per format, or null where it cannot be computed.
Json costs_json(const ModelConfig& config, std::int64_t tokens) {
  Json costs = Json::object();
  for (const DType type : kRowTypes) {
    const auto bytes = kv_cost(config, type, tokens);
    costs.set(dtype_info(type).name, bytes);
  }
  return costs;
}

std::string costs_text(const ModelConfig& config, std::int64_t tokens) {
  std::string text = column(tokens == 1 ? "a token" : count_text(tokens), 12);
  for (const DType type : kRowTypes) {
    const auto bytes = kv_cost(config, type, tokens);
    text += column(cat(dtype_info(type).name, " ", bytes ? bytes_text(*bytes) : "-"), 18);
  }
  return "  " + text + "\n";
}

// Scalars as they are; of lists and objects their size.
Json value_json(const JsonValue& value) {
  if (value.boolean() != nullptr) return *value.boolean();
  if (value.integer() != nullptr) return *value.integer();
  if (const auto number = value.number()) return *number;
  if (value.text() != nullptr) return *value.text();
  Json result = Json::object();
  if (value.list() != nullptr) return std::move(result.set("count", value.list()->size()));
  if (value.object() != nullptr) {
    for (const auto& [name, member] : *value.object()) result.set(name, value_json(member));
    return result;
  }
  return {};
}

std::string value_text(const JsonValue& value) {
  if (value.text() != nullptr) return quoted(*value.text(), kLongestString);
  if (value.list() != nullptr) return cat("[", value.list()->size(), " elements]");
  if (value.object() != nullptr) return cat("{", value.object()->size(), " members}");
  return value_json(value).text(false);
}

struct Found {
  JsonValue settings;
  SafeTensorsFiles weights;
  std::optional<ModelConfig> config;
  std::string why_not;
  std::map<std::string, std::int64_t> bytes_by_type;
  std::int64_t parameters = 0;

  Found(const std::string& folder, MappedFile::Mode mode)
      : settings(JsonValue::parse(read_whole_text(folder + "/config.json"), folder + "/config.json")),
        weights(folder, mode) {
    try {
      config = read_config(JsonFields(settings, folder + "/config.json"));
    } catch (const Error& error) {
      why_not = error.message();
    }
    for (const auto& tensor : weights.tensors()) {
      bytes_by_type[tensor.value.dtype] += static_cast<std::int64_t>(tensor.value.bytes.size());
      std::int64_t elements = 1;
      for (const std::int64_t extent : tensor.value.shape) elements *= extent;
      parameters += elements;
    }
  }
};

Json folder_json(const Found& found) {
  Json tensors = Json::array(), types = Json::object(), result = Json::object(), files = Json::array();
  for (const auto& tensor : found.weights.tensors()) {
    Json item = Json::object();
    item.set("name", tensor.name)
        .set("type", tensor.value.dtype)
        .set("shape", Json::array(tensor.value.shape))
        .set("bytes", tensor.value.bytes.size());
    tensors.push(std::move(item));
  }
  for (const auto& [type, bytes] : found.bytes_by_type) types.set(type, bytes);
  for (const std::string& path : found.weights.paths()) files.push(path.substr(path.rfind('/') + 1));
  const JsonValue* type = found.settings.find("model_type");
  result.set("format", "folder")
      .set("architecture", type != nullptr ? value_json(*type) : Json())
      .set("files", std::move(files))
      .set("file_bytes", found.weights.file_bytes())
      .set("parameters", found.parameters)
      .set("bytes_by_type", std::move(types))
      .set("metadata", value_json(found.settings))
      .set("tensors", std::move(tensors));
  set_memory(result, found.config, found.why_not);
  return result;
}

std::string folder_text(const Found& found, bool all) {
  std::string text =
      cat("Folder, ", found.weights.paths().size(), " file(s) of weights, ",
          bytes_text(static_cast<std::int64_t>(found.weights.file_bytes())), "\n\nconfig.json\n");
  if (const auto* settings = found.settings.object())
    for (const auto& [name, value] : *settings)
      text += cat("  ", shown(name), " = ", value_text(value), "\n");
  text += "\nTensors\n";
  std::vector<ListedTensor> tensors;
  for (const auto& tensor : found.weights.tensors())
    tensors.push_back({std::string(tensor.name),
                       std::string(tensor.value.dtype),
                       {tensor.value.shape.begin(), tensor.value.shape.end()},
                       static_cast<std::int64_t>(tensor.value.bytes.size())});
  text += tensor_lines(tensors, all);
  text += cat("\nParameters: ", count_text(found.parameters), " in ", found.weights.tensors().size(),
              " tensors\n");
  for (const auto& [type, bytes] : found.bytes_by_type)
    text += cat("  ", column(type, 7), bytes_text(bytes), "\n");
  return text + memory_text(found.config, found.why_not);
}

}  // namespace

std::string shown(std::string_view name) {
  const std::string in_quotes = quoted(name, 200);
  return in_quotes.substr(1, in_quotes.size() - 2);
}

std::string column(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

void set_memory(Json& result, const std::optional<ModelConfig>& config, const std::string& why_not) {
  result.set("kv_bytes_per_token", config ? costs_json(*config, 1) : Json());
  Json costs = Json::object();
  if (config)
    for (const std::int64_t tokens : kContexts) costs.set(cat(tokens), costs_json(*config, tokens));
  result.set("kv_bytes", config ? std::move(costs) : Json());
  result.set("carried_bytes", config ? Json(carried_cost(*config)) : Json());
  result.set("checkpoint_bytes", config ? Json(checkpoint_cost(*config, DType::f16)) : Json());
  if (!config) result.set("kv_unknown", why_not);
}

std::string memory_text(const std::optional<ModelConfig>& config, const std::string& why_not) {
  if (!config) return cat("\nKV memory: cannot be computed: ", why_not, "\n");
  std::string text = "\nKV memory for so many tokens\n" + costs_text(*config, 1);
  for (const std::int64_t tokens : kContexts) text += costs_text(*config, tokens);
  if (const std::int64_t carried = carried_cost(*config); carried > 0)
    text += cat("  carried from token to token, for any length: ", bytes_text(carried), "\n");
  if (const std::int64_t one = checkpoint_cost(*config, DType::f16); one > 0)
    text += cat("  a checkpoint, to go back to: ", bytes_text(one), " at most (rows in f16)\n");
  return text;
}

int inspect_folder(const Arguments& arguments) {
  const Found found(arguments.model,
                    arguments.loading.map_file ? MappedFile::Mode::map : MappedFile::Mode::copy);
  write_result(arguments.json ? folder_json(found).text() + "\n" : folder_text(found, arguments.verbose));
  return kExitFine;
}

}  // namespace kvtide
