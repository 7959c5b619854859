// shard_flags.cpp: the flags of kvtide shard, and which of its two actions takes them.
#include <algorithm>

#include "base/refuse.h"
#include "base/text.h"
#include "cli/arguments/flag_groups.h"
#include "cli/arguments/flag_values.h"
#include "kvtide/error.h"

namespace kvtide {
namespace {

using A = Arguments;
using G = Given;

// One of two words.
bool first_of(const G& g, std::string_view first, std::string_view second) {
  if (g.value != first && g.value != second)
    refuse(cat(g.flag, ": there are ", first, " and ", second, ", not ", quoted(g.value)));
  return g.value == first;
}

constexpr Flag kShard[] = {
    {"-o", "--out", "FOLDER", "export: where the shards go; new or empty",
     [](A& a, const G& g) { a.out = g.value; }},
    {"", "--type", "TYPE", "export: weights as f16 or int8 [f16]",
     [](A& a, const G& g) {
       a.shard.how.type = first_of(g, "f16", "int8") ? ShardExport::Type::f16 : ShardExport::Type::int8;
       a.shard.changes_export = true;
     }},
    {"", "--scales", "KIND", "export: a scale for each tensor or channel of int8 [channel]",
     [](A& a, const G& g) {
       a.shard.how.scales =
           first_of(g, "tensor", "channel") ? ShardExport::Scales::tensor : ShardExport::Scales::channel;
       a.shard.scales_given = a.shard.changes_export = true;
     }},
    {"", "--min-elements", "N", "export: smaller matrices stay f16 [2048]",
     [](A& a, const G& g) {
       a.shard.how.min_elements = whole(g, "the number of elements", 0, INT64_MAX);
       a.shard.scales_given = a.shard.changes_export = true;
     }},
    {"", "--keep-f16", "NAMES", "export: matrices that stay f16: query,key or attention.3/output",
     [](A& a, const G& g) {
       for (std::size_t at = 0; at <= g.value.size();) {
         const std::size_t comma = std::min(g.value.find(',', at), g.value.size());
         if (comma == at) refuse(cat(g.flag, ": a name between two commas is missing"));
         a.shard.how.keep_f16.push_back(g.value.substr(at, comma - at));
         at = comma + 1;
       }
       a.shard.scales_given = a.shard.changes_export = true;
     }},
    {"", "--slots", "S", "export: positions that a state holds [2048, or what the model has learned]",
     [](A& a, const G& g) {
       a.shard.how.slots = whole(g, "the number of slots", 1, std::int64_t{1} << 20);
       a.shard.changes_export = true;
     }},
    {"", "--head-shards", "N", "export: files that share the vocabulary [1]",
     [](A& a, const G& g) {
       a.shard.how.head_shards = static_cast<int>(whole(g, "the number of head shards", 1, 4096));
       a.shard.changes_export = true;
     }},
    {"-n", "--predict", "N", "run: tokens to write at most [256]",
     [](A& a, const G& g) {
       a.max_tokens = whole(g, "the number of tokens to write", 1, std::int64_t{1} << 20);
     }},
    {"", "--draft", "ngram", "run: guess tokens from what the text said before; changes speed only",
     [](A& a, const G& g) {
       if (g.value != "ngram") refuse(cat(g.flag, ": there is ngram, not ", quoted(g.value)));
       a.shard.draft = true;
     }},
};

}  // namespace

FlagGroup shard_flags() { return {Section::basics, kShard}; }

void check_shard_request(const Arguments& a) {
  constexpr std::string_view kUsage =
      "kvtide shard export -m MODEL -o FOLDER [flags], or "
      "kvtide shard run -m FOLDER -p TEXT [flags]";
  const ShardRequest& request = a.shard;
  if (request.action != "export" && request.action != "run")
    refuse(cat("kvtide shard: ",
               request.action.empty() ? "say what to do" : "there is no action " + quoted(request.action),
               ": ", kUsage));
  if (a.model.empty()) refuse(cat("-m is missing: ", kUsage));
  const auto only = [&](bool given, std::string_view flag, std::string_view action) {
    if (given && request.action != action)
      refuse(cat("kvtide shard ", request.action, " takes no ", flag, ": ", kUsage));
  };
  only(!a.out.empty(), "-o", "export");
  only(request.changes_export, "--type, --scales, --min-elements, --keep-f16, --slots or --head-shards",
       "export");
  only(request.draft, "--draft", "run");
  only(a.prompt || a.file, "-p or -f", "run");
  only(a.max_tokens.has_value(), "-n", "run");
  only(a.no_bos, "--no-bos", "run");
  only(a.no_special, "--no-special", "run");
  only(!a.session.kernels.empty(), "--kernels", "run");
  if (request.action == "run") {
    if (a.prompt && a.file) refuse("-p and -f: one text at a time");
    return;
  }
  if (a.out.empty()) refuse(cat("-o FOLDER is missing: ", kUsage));
  if (request.scales_given && request.how.type == ShardExport::Type::f16)
    refuse("--scales, --min-elements and --keep-f16 have a meaning only with --type int8");
}

}  // namespace kvtide
