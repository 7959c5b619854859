#include "cli/optional/inspect_shards.h"

#include <array>

#include "base/json/json.h"
#include "base/text.h"
#include "cli/arguments/procedural_options.h"
#include "cli/commands/exit_status.h"
#include "cli/output/columns.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"
#include "shards/shard_folder.h"

namespace kvtide {
namespace {

constexpr std::array kKinds = {ShardKind::embedding, ShardKind::attention, ShardKind::mlp, ShardKind::moe,
                               ShardKind::head};
constexpr std::int64_t kSlots[] = {1024, 4096, 32768};

std::int64_t file_bytes(const ShardFolder& folder) {
  std::int64_t sum = 0;
  for (const ShardInfo& shard : folder.shards()) sum += shard.bytes;
  return sum;
}

// "12 layers x 2 x 4 KV heads x 2,048 slots x 64 x 2 bytes"
std::string sum_text(const ShardFolder& folder, std::int64_t slots) {
  const ModelConfig& c = folder.internals().manifest.config;
  return cat(folder.layers(), " layers x 2 x ", c.kv_heads, " KV heads x ", count_text(slots), " slots x ",
             c.head_dim, " x 2 bytes", c.convolved ? ", and what convolutions carry" : "");
}

std::vector<std::vector<std::string>> files_table(const ShardFolder& folder) {
  std::vector<std::vector<std::string>> rows = {{"shards", "files", "bytes"}};
  for (const ShardKind kind : kKinds) {
    std::int64_t files = 0, bytes = 0;
    for (const ShardInfo& shard : folder.shards())
      if (shard.kind == kind) ++files, bytes += shard.bytes;
    if (files > 0) rows.push_back({std::string(shard_kind_name(kind)), cat(files), bytes_text(bytes)});
  }
  rows.push_back({"in all", cat(folder.shards().size()), bytes_text(file_bytes(folder))});
  return rows;
}

Json folder_json(const ShardFolder& folder) {
  const ShardManifest& manifest = folder.internals().manifest;
  Json shards = Json::array(), states = Json::object(), out = Json::object();
  for (const ShardInfo& shard : folder.shards()) {
    Json item = Json::object();
    item.set("name", shard.name).set("kind", shard_kind_name(shard.kind)).set("bytes", shard.bytes);
    shards.push(std::move(item));
  }
  for (const std::int64_t slots : kSlots) states.set(cat(slots), folder.state_bytes(slots));
  out.set("format", "shards")
      .set("model", manifest.name)
      .set("weights", manifest.weights)
      .set("layers", folder.layers())
      .set("width", folder.width())
      .set("kv_heads", manifest.config.kv_heads)
      .set("head_dim", manifest.config.head_dim)
      .set("slots", folder.slots())
      .set("t_max", folder.t_max())
      .set("file_bytes", file_bytes(folder))
      .set("state_bytes", folder.state_bytes())
      .set("state_bytes_per_layer", folder.state_bytes() / folder.layers())
      .set("state_bytes_by_slots", std::move(states))
      .set("shards", std::move(shards));
  return out;
}

std::string folder_text(const ShardFolder& folder) {
  const ShardManifest& manifest = folder.internals().manifest;
  std::string text =
      cat("Shards of ", manifest.name, ", ", manifest.weights, "\n\n", columns_text(files_table(folder)),
          "\n", folder.layers(), " layers of width ", folder.width(), ", ", manifest.config.kv_heads,
          " KV heads of ", manifest.config.head_dim, ", calls of up to ", folder.t_max(), " tokens\n\n");
  text += cat("States of one sequence, taken whole when they are made\n");
  std::vector<std::vector<std::string>> rows = {{cat("  ", count_text(folder.slots()), " slots, as exported"),
                                                 bytes_text(folder.state_bytes()),
                                                 sum_text(folder, folder.slots())}};
  for (const std::int64_t slots : kSlots)
    if (slots != folder.slots())
      rows.push_back({cat("  ", count_text(slots), " slots"), bytes_text(folder.state_bytes(slots)),
                      cat("shard export --slots ", slots)});
  return text + columns_text(rows);
}

}  // namespace

int inspect_shards(const Arguments& arguments) {
  const ShardFolder folder(arguments.model, {.threads = 1});
  write_result(arguments.json ? folder_json(folder).text() + "\n" : folder_text(folder));
  return kExitFine;
}

int plan_shards(const Arguments& arguments) {
  if (procedural_options(arguments).budget > 0)
    throw Error(ErrorCode::invalid_argument,
                "--kv-budget: the states of shards keep every row; --ctx says for how many slots, and kvtide "
                "shard export --slots makes as many");
  const ShardFolder folder(arguments.model, {.threads = 1});
  const std::int64_t slots = arguments.lengths.front(), states = folder.state_bytes(slots),
                     weights = file_bytes(folder);
  if (arguments.json) {
    Json out = Json::object();
    out.set("model", folder.internals().manifest.name)
        .set("slots", slots)
        .set("exported_slots", folder.slots())
        .set("state_bytes", states)
        .set("exported_state_bytes", folder.state_bytes())
        .set("weights_bytes", weights)
        .set("total_bytes", weights + states);
    write_result(out.text() + "\n");
    return kExitFine;
  }
  write_result(columns_text(
      {{cat("states of a sequence of ", count_text(slots), " slots"), bytes_text(states),
        sum_text(folder, slots)},
       {cat("as exported, ", count_text(folder.slots()), " slots"), bytes_text(folder.state_bytes()),
        slots > folder.slots() ? cat("shard export --slots ", slots, " makes more") : ""},
       {"weights", bytes_text(weights), folder.internals().manifest.weights},
       {"weights and states", bytes_text(weights + states), ""}}));
  return kExitFine;
}

}  // namespace kvtide
