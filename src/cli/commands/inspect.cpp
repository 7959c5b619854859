// kvtide inspect: what a model file holds and what the memory of such a model would cost. Loads no weights,
// runs on files whose architecture kvtide does not know, and prints whatever a hostile file says in escaped
// form.
#include <cstring>
#include <map>
#include <optional>

#include "base/json/json.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/inspect_folder.h"
#include "cli/commands/tensor_list.h"
#include "cli/output/kv_cost.h"
#include "cli/output/terminal.h"
#include "formats/gguf.h"
#include "formats/text_file.h"
#include "kvtide/error.h"
#include "model/read_config.h"

namespace kvtide {
namespace {

constexpr std::size_t kShown = 8;       // elements of a long array
constexpr std::size_t kTextLimit = 72;  // bytes of a string in the listing

struct Totals {
  std::int64_t parameters = 0;
  std::map<std::string_view, std::int64_t> bytes_by_type;
};

std::int64_t elements_of(const GgufTensor& tensor) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : tensor.shape) elements *= extent;
  return elements;
}

Totals totals_of(const GgufFile& file) {
  Totals totals;
  for (const GgufTensor& tensor : file.tensors()) {
    totals.parameters += elements_of(tensor);
    totals.bytes_by_type[dtype_info(tensor.dtype).name] += static_cast<std::int64_t>(tensor.data.size());
  }
  return totals;
}

template <class T>
T element_at(std::span<const std::byte> bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

Json element(const GgufValue& array, std::size_t i) {
  switch (array.element) {
    case GgufType::u8:
      return element_at<std::uint8_t>(array.elements, i);
    case GgufType::i8:
      return element_at<std::int8_t>(array.elements, i);
    case GgufType::u16:
      return element_at<std::uint16_t>(array.elements, i);
    case GgufType::i16:
      return element_at<std::int16_t>(array.elements, i);
    case GgufType::u32:
      return element_at<std::uint32_t>(array.elements, i);
    case GgufType::i32:
      return element_at<std::int32_t>(array.elements, i);
    case GgufType::f32:
      return static_cast<double>(element_at<float>(array.elements, i));
    case GgufType::boolean:
      return element_at<std::uint8_t>(array.elements, i) != 0;
    case GgufType::string:
      return array.strings[i];
    case GgufType::u64:
      return element_at<std::uint64_t>(array.elements, i);
    case GgufType::i64:
      return element_at<std::int64_t>(array.elements, i);
    case GgufType::f64:
      return element_at<double>(array.elements, i);
    case GgufType::array:
      break;  // refused when the file was opened
  }
  return {};
}

// A scalar as it is; an array of up to kShown elements as a list, a longer one as {count, type, first}.
Json value_json(const GgufValue& value) {
  if (value.type != GgufType::array)
    return std::visit([](const auto& scalar) { return Json(scalar); }, value.scalar);
  Json items = Json::array();
  for (std::size_t i = 0; i < value.count && i < kShown; ++i) items.push(element(value, i));
  if (value.count <= kShown) return items;
  Json shortened = Json::object();
  shortened.set("count", value.count)
      .set("type", gguf_type_name(value.element))
      .set("first", std::move(items));
  return shortened;
}

std::string scalar_text(
    const std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view>& scalar) {
  if (const auto* text = std::get_if<std::string_view>(&scalar)) return quoted(*text, kTextLimit);
  if (const auto* flag = std::get_if<bool>(&scalar)) return *flag ? "true" : "false";
  return std::visit([](const auto& number) { return Json(number).text(false); }, scalar);
}

std::string value_text(const GgufValue& value) {
  if (value.type != GgufType::array) return scalar_text(value.scalar);
  std::string text = "[";
  for (std::size_t i = 0; i < value.count && i < kShown; ++i)
    text += cat(i > 0 ? ", " : "", value.element == GgufType::string ? quoted(value.strings[i], 24)
                                                                     : element(value, i).text(false));
  if (value.count > kShown) text += cat(", ... ", value.count, " ", gguf_type_name(value.element), " in all");
  return text + "]";
}

Json file_json(const GgufFile& file, const std::optional<ModelConfig>& config, const std::string& why_not) {
  Json metadata = Json::object(), tensors = Json::array(), types = Json::object();
  for (const auto& entry : file.metadata()) metadata.set(entry.key, value_json(entry.value));
  for (const GgufTensor& tensor : file.tensors()) {
    Json item = Json::object();
    item.set("name", tensor.name)
        .set("type", dtype_info(tensor.dtype).name)
        .set("shape", Json::array(tensor.shape))
        .set("bytes", tensor.data.size());
    tensors.push(std::move(item));
  }
  const Totals totals = totals_of(file);
  for (const auto& [type, bytes] : totals.bytes_by_type) types.set(type, bytes);
  const GgufValue* architecture = file.find("general.architecture");
  Json result = Json::object();
  result.set("format", "gguf")
      .set("version", file.version())
      .set("architecture", architecture != nullptr ? value_json(*architecture) : Json())
      .set("file_bytes", file.file_bytes())
      .set("parameters", totals.parameters)
      .set("bytes_by_type", std::move(types))
      .set("metadata", std::move(metadata))
      .set("tensors", std::move(tensors));
  set_memory(result, config, why_not);
  return result;
}

std::string file_text(const GgufFile& file, const std::optional<ModelConfig>& config,
                      const std::string& why_not, bool all) {
  std::string text = cat("GGUF version ", file.version(), ", ",
                         bytes_text(static_cast<std::int64_t>(file.file_bytes())), "\n\nMetadata\n");
  for (const auto& entry : file.metadata())
    text += cat("  ", shown(entry.key), " = ", value_text(entry.value), "\n");
  text += "\nTensors\n";
  std::vector<ListedTensor> tensors;
  for (const GgufTensor& tensor : file.tensors())
    tensors.push_back({std::string(tensor.name),
                       std::string(dtype_info(tensor.dtype).name),
                       {tensor.shape.begin(), tensor.shape.end()},
                       static_cast<std::int64_t>(tensor.data.size())});
  text += tensor_lines(tensors, all);
  const Totals totals = totals_of(file);
  text += cat("\nParameters: ", count_text(totals.parameters), " in ", file.tensors().size(), " tensors\n");
  for (const auto& [type, bytes] : totals.bytes_by_type)
    text += cat("  ", column(std::string(type), 7), bytes_text(bytes), "\n");
  return text + memory_text(config, why_not);
}

}  // namespace

int inspect_command(const Arguments& arguments) {
  if (is_folder(arguments.model)) return inspect_folder(arguments);
  const GgufFile file(arguments.model,
                      arguments.loading.map_file ? MappedFile::Mode::map : MappedFile::Mode::copy);
  std::optional<ModelConfig> config;
  std::string why_not;
  try {
    config = read_config(file);
  } catch (const Error& error) {
    why_not = error.message();
  }
  write_result(arguments.json ? file_json(file, config, why_not).text() + "\n"
                              : file_text(file, config, why_not, arguments.verbose));
  return kExitFine;
}

}  // namespace kvtide
