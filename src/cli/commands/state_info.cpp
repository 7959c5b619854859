// state_info.cpp: what a snapshot holds.
#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/json/json.h"
#include "base/text.h"
#include "cli/commands/state_files.h"
#include "cli/output/procedural_fields.h"
#include "cli/output/report.h"
#include "cli/output/terminal.h"
#include "state/procedural/budget.h"

namespace kvtide {
namespace {

std::int64_t file_bytes(const std::string& path) {
  std::error_code failure;
  const auto size = std::filesystem::file_size(path, failure);
  return failure ? 0 : static_cast<std::int64_t>(size);
}

Json pair_of(std::int64_t first, std::int64_t second) { return Json::array(std::vector{first, second}); }

Json layers_json(const StateImage& image) {
  Json layers = Json::array();
  for (std::size_t i = 0; i < image.spec.layers.size(); ++i) {
    const LayerSpec& layer = image.spec.layers[i];
    Json runs = Json::array();
    for (const PosRange& run : image.runs[i]) runs.push(pair_of(run.first, run.last));
    Json item = Json::object();
    item.set("kv_heads", layer.kv_heads)
        .set("head_dim", layer.head_dim)
        .set("window", layer.window)
        .set("rows", std::move(runs));
    layers.push(std::move(item));
  }
  return layers;
}

Json past_json(const ProceduralMemory& past, const ProceduralImage& image) {
  const ProceduralSpec& spec = past.spec();
  const ProceduralCounts counts = past.counts();
  Json blocks = Json::array(), rows = Json::object();
  for (const auto& block : image.blocks)
    blocks.push(Json::array(std::vector<std::int64_t>{block.first, block.last, block.level}));
  rows.set("full", counts.full_rows)
      .set("outliers", counts.outlier_rows)
      .set("summaries", Json::array(counts.summary_rows));
  Json procedural = Json::object();
  procedural.set("chosen", fields_json(spec))
      .set("row_type", dtype_info(spec.plain_type).name)
      .set("full_type", dtype_info(spec.copy_type).name)
      .set("sealed", image.sealed)
      .set("blocks", std::move(blocks))
      .set("rows", std::move(rows));
  return procedural;
}

Json carried_json(const KvSpec& spec) {
  Json carried = Json::array();
  for (const RecurrentSpec& tensor : spec.recurrent) {
    Json item = Json::object();
    item.set("name", tensor.name).set("dtype", dtype_info(tensor.dtype).name).set("shape", tensor.shape);
    carried.push(std::move(item));
  }
  return carried;
}

Json info_json(const Snapshot& snapshot, const std::string& path) {
  const StateImage image = snapshot.state.image();
  Json identity = Json::object(), segments = Json::array();
  for (const auto& [key, value] : snapshot.extras.identity) identity.set(key, value);
  for (const Segment& segment : image.segments)
    segments.push(Json::array(std::vector{segment.first, segment.last, segment.shift}));
  Json rolling;
  if (image.spec.rolling) {
    rolling = Json::object();
    rolling.set("sinks", image.spec.rolling->sinks).set("window", image.spec.rolling->window);
  }
  Json procedural;
  if (const ProceduralMemory* past = snapshot.state.past()) procedural = past_json(*past, *image.past);
  Json adapting;
  if (image.adapting) {
    adapting = Json::object();
    adapting.set("smallest", image.adapting->range.smallest).set("largest", image.adapting->range.largest);
  }
  Json json = Json::object();
  json.set("format", "kvtide-state")
      .set("version", cat("1.", snapshot.minor))
      .set("file_bytes", file_bytes(path))
      .set("identity", std::move(identity))
      .set("exact", snapshot.extras.exact)
      .set("position", image.position)
      .set("rows", snapshot.state.rows())
      .set("capacity", image.spec.capacity)
      .set("key_type", dtype_info(image.spec.key_type).name)
      .set("value_type", dtype_info(image.spec.value_type).name)
      .set("attention_size", image.attention_size)
      .set("auto_attention", std::move(adapting))
      .set("rolling", std::move(rolling))
      .set("procedural", std::move(procedural))
      .set("slack", image.spec.slack)
      .set("checkpoints", Json::array(image.checkpoints))
      .set("checkpoint_bytes", snapshot.state.checkpoint_bytes())
      .set("kv_bytes", snapshot.state.held_bytes())
      .set("capacity_bytes", snapshot.state.capacity_bytes())
      .set("segments", std::move(segments))
      .set("layers", layers_json(image))
      .set("carried", carried_json(image.spec))
      .set("logits_hash",
           snapshot.extras.logits.empty() ? Json() : Json(hash_text(hash_logits(snapshot.extras.logits))))
      .set("tokens", Json::array(snapshot.extras.tokens));
  return json;
}

std::string identity_of(const Snapshot& snapshot, const char* key) {
  const auto found = snapshot.extras.identity.find(key);
  return found == snapshot.extras.identity.end() ? "unknown" : quoted(found->second);
}

// "18 layers, 1 KV head of 256; 15 of them see the newest 512 positions"
std::string shape_text(const KvSpec& spec) {
  if (spec.layers.empty()) return "no layer keeps rows";
  const LayerSpec& first = spec.layers.front();
  const auto same = [&](const LayerSpec& layer) {
    return layer.kv_heads == first.kv_heads && layer.head_dim == first.head_dim;
  };
  std::string text = cat(spec.layers.size(), spec.layers.size() == 1 ? " layer" : " layers");
  if (std::all_of(spec.layers.begin(), spec.layers.end(), same))
    text += cat(", ", first.kv_heads, first.kv_heads == 1 ? " KV head of " : " KV heads of ", first.head_dim);
  for (auto layer = spec.layers.begin(); layer != spec.layers.end(); ++layer) {
    const auto alike = [&](const LayerSpec& other) { return other.window == layer->window; };
    if (!layer->window || std::any_of(spec.layers.begin(), layer, alike)) continue;
    text += cat("; ", std::count_if(spec.layers.begin(), spec.layers.end(), alike),
                " of them see the newest ", count_text(*layer->window), " positions");
  }
  return text;
}

std::string adapts_text(const StateImage& image) {
  if (!image.adapting) return "";
  return cat(", adapts itself from ", count_text(image.adapting->range.smallest), " to ",
             count_text(image.adapting->range.largest));
}

std::string budget_text(const ProceduralSpec& spec, int minor) {
  if (minor == 0) return "not told: the file is of format 1.0, whose memories hold no budget";
  if (spec.budget == 0) return "none";
  const std::string expected = cat(count_text(spec.budget_for), " tokens");
  if (grows(spec) && spec.budget_for > 0) return cat(bytes_text(spec.budget), ", for ", expected);
  return cat(bytes_text(spec.budget), ", however long the text",
             spec.budget_for == 0 ? "" : cat("; chosen for ", expected));
}

std::string info_text(const Snapshot& snapshot, const std::string& path) {
  const StateImage image = snapshot.state.image();
  const KvSpec& spec = image.spec;
  std::string text = cat(path, ": a snapshot, ", bytes_text(file_bytes(path)), "\n");
  const auto line = [&](std::string_view name, const std::string& what) {
    text += cat("  ", name, what, "\n");
  };
  line("model      ",
       cat(identity_of(snapshot, "architecture"), ", SHA-256 ", identity_of(snapshot, "model")));
  line("tokenizer  ", cat("SHA-256 ", identity_of(snapshot, "tokenizer")));
  line("shape      ", shape_text(spec));
  if (!spec.recurrent.empty())
    line("carried    ", cat(spec.recurrent.size(), " tensors beside rows ('", spec.recurrent[0].name,
                            "' and so on), of ", image.recurrent.size(), " positions"));
  if (!image.checkpoints.empty())
    line("checkpoints",
         cat(" ", image.checkpoints.size(), " positions to go back to, from ",
             count_text(image.checkpoints.front()), " to ", count_text(image.checkpoints.back()),
             ", kept in ", bytes_text(snapshot.state.checkpoint_bytes())));
  line("types      ", cat(dtype_info(spec.key_type).name, " keys, ", dtype_info(spec.value_type).name,
                          " values, ", snapshot.extras.exact ? "f32" : "8-bit", " activations"));
  line("position   ", cat(count_text(image.position), "; holds ", count_text(snapshot.state.rows()),
                          spec.procedural ? " exact" : cat(" of ", count_text(spec.capacity)), " rows, ",
                          bytes_text(snapshot.state.held_bytes())));
  if (const ProceduralMemory* past = snapshot.state.past()) {
    const ProceduralCounts counts = past->counts();
    std::int64_t summaries = 0;
    for (const std::int64_t level : counts.summary_rows) summaries += level;
    line("policy     ", cat("procedural: ", count_text(past->spec().sinks), " sinks, a window of ",
                            count_text(past->spec().window), "; ", count_text(image.past->sealed),
                            " tokens in ", image.past->blocks.size(), " blocks: ", count_text(summaries),
                            " summaries and ", count_text(counts.outlier_rows), " outliers, ",
                            count_text(counts.full_rows), " rows of heads that copy"));
    line("budget     ", budget_text(*spec.procedural, snapshot.minor));
  }
  if (spec.rolling)
    line("policy     ", cat("rolling: ", count_text(spec.rolling->sinks), " sinks and the newest ",
                            count_text(spec.rolling->window)));
  line("attention  ", image.attention_size ? cat("the newest ", count_text(*image.attention_size),
                                                 " positions", adapts_text(image))
                                           : std::string("all that is held"));
  if (image.segments.size() > 1 || (!image.segments.empty() && image.segments[0].first > 0))
    for (const Segment& s : image.segments)
      line("segment    ", cat("positions ", count_text(s.first), " to ", count_text(s.last - 1),
                              s.shift > 0 ? cat(", seen ", count_text(s.shift), " nearer") : ""));
  line("logits     ", snapshot.extras.logits.empty()
                          ? std::string("none")
                          : cat("hash ", hash_text(hash_logits(snapshot.extras.logits))));
  return text;
}

}  // namespace

void print_state_info(const Snapshot& snapshot, const std::string& path, bool json) {
  write_result(json ? info_json(snapshot, path).text() + "\n" : info_text(snapshot, path));
}

}  // namespace kvtide
