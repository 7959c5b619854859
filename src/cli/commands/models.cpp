// kvtide models: the models that -m knows by name, those of other programs too: what they are, whether they run, what they
// would cost.
#include <optional>

#include "base/json/json.h"
#include "base/json/json_value.h"
#include "base/text.h"
#include "cli/commands/commands.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/models_folder.h"
#include "cli/output/columns.h"
#include "cli/output/kv_cost.h"
#include "cli/output/terminal.h"
#include "formats/gguf.h"
#include "formats/safetensors_files.h"
#include "formats/text_file.h"
#include "kvtide/error.h"
#include "model/named_models.h"
#include "model/read_config.h"

namespace kvtide {
namespace {

constexpr std::int64_t kListedTokens = 100000;

struct Description {
  std::string architecture = "?";
  std::int64_t file_bytes = 0;
  std::optional<ModelConfig> config;  // of a model that runs
  std::string why_not;
};

void describe_file(const std::string& path, Description& it) {
  const GgufFile file(path, MappedFile::Mode::map);
  it.file_bytes = static_cast<std::int64_t>(file.file_bytes());
  if (const GgufValue* name = file.find("general.architecture"))
    if (const auto* text = std::get_if<std::string_view>(&name->scalar)) it.architecture = *text;
  it.config = read_config(file);
}

void describe_folder(const std::string& path, Description& it) {
  const std::string name = path + "/config.json";
  const JsonValue settings = JsonValue::parse(read_whole_text(name), name);
  if (const JsonValue* type = settings.find("model_type"); type != nullptr && type->text() != nullptr)
    it.architecture = *type->text();
  const SafeTensorsFiles weights(path, MappedFile::Mode::map);
  it.file_bytes = static_cast<std::int64_t>(weights.file_bytes());
  it.config = read_config(JsonFields(settings, name));
}

// Of a model that cannot be read as much as is known before the failure, and the failure.
Description describe(const std::string& path) {
  Description it;
  try {
    is_folder(path) ? describe_folder(path, it) : describe_file(path, it);
  } catch (const Error& error) {
    it.config.reset();
    it.why_not = error.message();
  }
  return it;
}

std::optional<std::int64_t> cost_of(const Description& it) {
  if (!it.config) return std::nullopt;
  return kv_cost(*it.config, DType::f16, kListedTokens);
}

std::string list_json(const std::vector<NamedModel>& models) {
  Json list = Json::array();
  for (const NamedModel& model : models) {
    const Description it = describe(model.path);
    const auto full = cost_of(it);
    Json item = Json::object();
    item.set("name", model.name)
        .set("path", model.path)
        .set("architecture", it.architecture)
        .set("file_bytes", it.file_bytes)
        .set("runs", it.config.has_value())
        .set("why_not", it.config ? Json() : Json(it.why_not))
        .set("trained_tokens", it.config ? Json(it.config->context_length) : Json())
        .set("kv_bytes_100000", full);
    list.push(std::move(item));
  }
  return list.text() + "\n";
}

std::string list_text(const std::vector<NamedModel>& models) {
  std::vector<std::vector<std::string>> rows = {
      {"name", "architecture", "size", "runs", "trained for", "100,000 tokens take"}};
  std::string notes;
  for (const NamedModel& model : models) {
    const Description it = describe(model.path);
    const auto full = cost_of(it);
    rows.push_back({model.name, it.architecture, it.file_bytes > 0 ? bytes_text(it.file_bytes) : "?",
                    it.config ? "yes" : "no", it.config ? count_text(it.config->context_length) : "?",
                    full ? bytes_text(*full) : "?"});
    if (!it.config) notes += cat(model.name, ": ", it.why_not, "\n");
  }
  return cat(columns_text(rows), notes,
             "\n-m takes a name or, without a colon in it, its beginning. What 100,000 tokens take is a full "
             "cache in f16; "
             "--kv-budget 64M keeps it to 64 MiB.\n");
}

}  // namespace

int models_command(const Arguments& arguments) {
  const std::string folder = models_folder(arguments);
  std::vector<NamedModel> models = models_in(folder);
  if (models.empty())
    say(cat("there are no models in ", folder, "; `kvtide fetch smollm2` gets a small one"));
  if (arguments.folder.empty()) {
    const std::vector<NamedModel> stored = stored_models(model_stores());
    models.insert(models.end(), stored.begin(), stored.end());
  }
  if (arguments.json)
    write_result(list_json(models));
  else if (!models.empty())
    write_result(list_text(models));
  return kExitFine;
}

}  // namespace kvtide
