#include "coreml/decode/sequence_file.h"

#include <algorithm>

#include "base/file.h"
#include "base/json/json.h"
#include "base/json/json_fields.h"
#include "base/mapped_file.h"
#include "base/refuse.h"
#include "base/text.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"
#include "kvtide/error.h"

namespace kvtide::coreml {
namespace sequence_file_details {

std::string array_name(int layer, bool keys) { return cat("layers.", layer, keys ? ".k_state" : ".v_state"); }

class SequenceFile {
 public:
  explicit SequenceFile(const std::string& path)
      : path_(path), file_(path), arrays_(SafeTensors::parse(file_.bytes(), path)) {}

  std::vector<TokenId> tokens() const {
    constexpr std::int64_t kMostId = INT32_MAX;
    const auto found = arrays_.metadata.find("tokens");
    if (found == arrays_.metadata.end()) bad("does not say which tokens its rows belong to");
    const JsonValue json = JsonValue::parse(cat("{\"tokens\": ", found->second, "}"), path_);
    std::vector<TokenId> tokens;
    for (const std::int64_t id :
         JsonFields(json, path_).numbers<std::vector<std::int64_t>>("tokens", 0, kMostId))
      tokens.push_back(static_cast<TokenId>(id));
    return tokens;
  }

  void check_model(const std::map<std::string, std::string>& identity) const {
    for (const auto& [key, value] : identity)
      if (const auto found = arrays_.metadata.find("identity." + key);
          found != arrays_.metadata.end() && found->second != value)
        refuse(cat(path_, ": holds rows of another model: its ", key, " is ", found->second,
                   ", that of the package ", value));
  }

  std::vector<LayerRows> rows() const {
    std::vector<LayerRows> layers;
    for (int layer = 0; arrays_.tensors.contains(array_name(layer, true)); ++layer)
      layers.push_back({layer, array(array_name(layer, true)), array(array_name(layer, false))});
    if (layers.empty() || arrays_.tensors.size() != 2 * layers.size())
      bad("does not hold layers.0.k_state, layers.0.v_state and so on, and these alone: kvtide state export "
          "writes them with "
          "--layout per-layer");
    return layers;
  }

 private:
  [[noreturn]] void bad(const std::string& why) const {
    throw Error(ErrorCode::bad_format, cat(path_, ": ", why));
  }

  CoremlArray array(const std::string& name) const {
    const auto found = arrays_.tensors.find(name);
    if (found == arrays_.tensors.end()) bad(cat("lacks the array ", quoted(name)));
    const SafeTensor& tensor = found->second;
    if (tensor.dtype != "F16" || tensor.shape.size() != 4)
      bad(cat("array ", quoted(name), " is no F16 [1, kv_heads, rows, head_dim]"));
    if (const auto first = arrays_.metadata.find("first_position." + name);
        first != arrays_.metadata.end() && first->second != "0")
      bad(cat("array ", quoted(name), " begins at position ", first->second,
              ", and a package wants all rows"));
    return {CoremlType::f16, tensor.shape, {tensor.bytes.begin(), tensor.bytes.end()}};
  }

  std::string path_;
  MappedFile file_;
  SafeTensors arrays_;
};

}  // namespace sequence_file_details

using sequence_file_details::array_name;
using sequence_file_details::SequenceFile;

void save_sequence(const Decoder& decoder, const std::string& path) {
  if (decoder.position() == 0) refuse("nothing was read, so there is nothing to save");
  SafeTensorsWriter writer;
  writer.set_metadata("format", "kvtide-state");
  writer.set_metadata("layout", "per-layer");
  writer.set_metadata("position", std::to_string(decoder.position()));
  writer.set_metadata("tokens", Json::array(decoder.tokens()).text(false));
  for (const auto& [key, value] : decoder.identity()) writer.set_metadata("identity." + key, value);
  for (LayerRows& layer : decoder.rows()) {
    writer.add(array_name(layer.layer, true), "F16", layer.keys.shape, std::move(layer.keys.bytes));
    writer.add(array_name(layer.layer, false), "F16", layer.values.shape, std::move(layer.values.bytes));
  }
  PosixFiles files;
  writer.save(files, path);
}

std::vector<TokenId> load_sequence(Decoder& decoder, const std::string& path, std::int64_t again) {
  const SequenceFile file(path);
  std::vector<TokenId> tokens = file.tokens();
  file.check_model(decoder.identity());
  const auto left = std::min<std::size_t>(static_cast<std::size_t>(again), tokens.size());
  std::vector<TokenId> rest(tokens.end() - static_cast<std::ptrdiff_t>(left), tokens.end());
  tokens.resize(tokens.size() - left);
  decoder.restore(std::move(tokens), file.rows());
  return rest;
}

}  // namespace kvtide::coreml
