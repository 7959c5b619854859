// state_diff.cpp: how two snapshots differ: what they are, what they read, and the bits of their rows.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/checksum.h"
#include "base/json/json.h"
#include "base/text.h"
#include "cli/commands/state_files.h"
#include "cli/output/procedural_fields.h"
#include "cli/output/report.h"
#include "cli/output/terminal.h"
#include "state/state_rows.h"

namespace kvtide {
namespace {

struct Field {
  std::string name, first, second;
};

std::string number_or_all(const std::optional<std::int64_t>& value) { return value ? cat(*value) : "all"; }

std::string rolling_of(const KvSpec& spec) {
  return spec.rolling ? cat(spec.rolling->sinks, "+", spec.rolling->window) : "none";
}

// How many rows every head keeps of a block, and the types that rows have.
std::string plans_of(const ProceduralSpec& p) {
  std::string text =
      cat(dtype_info(p.plain_type).name, ", copying heads ", dtype_info(p.copy_type).name, ":");
  for (const auto& layer : p.plans)
    for (const HeadPlan& plan : layer) text += plan.full ? std::string(" all") : cat(" ", plan.rows);
  return text;
}

// The fields of a procedural memory by name, with what they led to.
std::vector<Field> procedural_fields(const KvSpec& first, const KvSpec& second) {
  if (!first.procedural || !second.procedural)
    return {{"procedural", first.procedural ? "yes" : "none", second.procedural ? "yes" : "none"}};
  const auto a = field_texts(*first.procedural, true), b = field_texts(*second.procedural, true);
  std::vector<Field> fields;
  for (std::size_t i = 0; i < a.size(); ++i)
    fields.push_back({cat("procedural.", a[i].name), a[i].text, b[i].text});
  fields.push_back({"procedural.plans", plans_of(*first.procedural), plans_of(*second.procedural)});
  return fields;
}

// Blocks, and a sum over all that is kept of them.
std::string blocks_of(const KvState& state) {
  if (state.past() == nullptr) return "none";
  std::string text;
  for (const auto& block : state.past()->image().blocks)
    text += cat(text.empty() ? "" : " ", block.first, "-", block.last, "/", block.level);
  std::uint32_t sum = 0;
  for (const auto part : state.past()->payload()) sum = crc32c(part, sum);
  return cat(text, " sum ", sum);
}

std::string shape_of(const KvSpec& spec) {
  std::string text;
  for (const LayerSpec& layer : spec.layers)
    text += cat(text.empty() ? "" : " ", layer.kv_heads, "x", layer.head_dim,
                layer.window ? cat("/", *layer.window) : "");
  return text;
}

std::string segments_of(const StateImage& image) {
  std::string text;
  for (const Segment& s : image.segments)
    text += cat(text.empty() ? "" : " ", s.first, "-", s.last, "+", s.shift);
  return text;
}

std::string positions_of(const std::vector<Pos>& positions) {
  std::string text;
  for (const Pos pos : positions) text += cat(text.empty() ? "" : " ", pos);
  return text;
}

std::string adapting_of(const StateImage& image) {
  if (!image.adapting) return "none";
  std::string text = cat(image.adapting->range.smallest, "-", image.adapting->range.largest, ":");
  for (const std::int32_t sample : image.adapting->samples) text += cat(" ", sample);
  return text;
}

std::vector<Field> different_fields(const Snapshot& a, const Snapshot& b) {
  const StateImage x = a.state.image(), y = b.state.image();
  std::vector<Field> fields;
  const auto compare = [&](std::string name, std::string first, std::string second) {
    if (first != second) fields.push_back({std::move(name), std::move(first), std::move(second)});
  };
  for (const char* key : {"architecture", "model", "tokenizer"}) {
    const auto value = [&](const Snapshot& s) {
      const auto found = s.extras.identity.find(key);
      return found == s.extras.identity.end() ? std::string() : found->second;
    };
    compare(key, value(a), value(b));
  }
  compare("exact", a.extras.exact ? "true" : "false", b.extras.exact ? "true" : "false");
  compare("shape", shape_of(x.spec), shape_of(y.spec));
  compare("key_type", std::string(dtype_info(x.spec.key_type).name),
          std::string(dtype_info(y.spec.key_type).name));
  compare("value_type", std::string(dtype_info(x.spec.value_type).name),
          std::string(dtype_info(y.spec.value_type).name));
  compare("capacity", cat(x.spec.capacity), cat(y.spec.capacity));
  compare("rolling", rolling_of(x.spec), rolling_of(y.spec));
  for (const Field& field : procedural_fields(x.spec, y.spec)) compare(field.name, field.first, field.second);
  compare("blocks", blocks_of(a.state), blocks_of(b.state));
  compare("attention_size", number_or_all(x.attention_size), number_or_all(y.attention_size));
  if (x.adapting != y.adapting) compare("auto_attention", adapting_of(x), adapting_of(y));
  compare("position", cat(x.position), cat(y.position));
  compare("segments", segments_of(x), segments_of(y));
  if (x.forgotten != y.forgotten) compare("forgotten", positions_of(x.forgotten), positions_of(y.forgotten));
  const auto hash = [](const Snapshot& s) {
    return s.extras.logits.empty() ? std::string("none") : hash_text(hash_logits(s.extras.logits));
  };
  compare("logits_hash", hash(a), hash(b));
  return fields;
}

// The rows of one layer that both hold, all heads of a position together.
struct RowDifference {
  int layer = 0;
  std::int64_t common = 0, only_first = 0, only_second = 0, different = 0;
  std::optional<Pos> first_different;
  double keys = 0.0, values = 0.0;  // largest absolute difference
};

class RowComparison {
 public:
  RowComparison(const StateRows& a, const StateRows& b) : a_(a), b_(b) {}

  RowDifference layer(int index) const {
    RowDifference result;
    result.layer = index;
    const std::int64_t held_by_b = count(b_, index);
    for (const PosRange& run : a_.runs(index))
      for (Pos pos = run.first; pos < run.last; ++pos) {
        if (b_.row(index, 0, KvPart::keys, pos).empty()) {
          ++result.only_first;
          continue;
        }
        ++result.common;
        if (same(index, pos, result)) continue;
        ++result.different;
        if (!result.first_different) result.first_different = pos;
      }
    result.only_second = held_by_b - result.common;
    return result;
  }

 private:
  static std::int64_t count(const StateRows& rows, int layer) {
    std::int64_t held = 0;
    for (const PosRange& run : rows.runs(layer)) held += run.size();
    return held;
  }

  bool same(int layer, Pos pos, RowDifference& result) const {
    const LayerSpec& spec = a_.image().spec.layers[static_cast<std::size_t>(layer)];
    bool equal = true;
    std::vector<float> x(static_cast<std::size_t>(spec.head_dim)), y(x.size());
    for (int head = 0; head < spec.kv_heads; ++head)
      for (const KvPart part : {KvPart::keys, KvPart::values}) {
        const auto p = a_.row(layer, head, part, pos), q = b_.row(layer, head, part, pos);
        if (a_.dtype(part) == b_.dtype(part) && std::memcmp(p.data(), q.data(), p.size()) == 0) continue;
        equal = false;
        a_.read(layer, head, part, pos, x.data());
        b_.read(layer, head, part, pos, y.data());
        double& largest = part == KvPart::keys ? result.keys : result.values;
        for (std::size_t i = 0; i < x.size(); ++i)
          largest = std::max(largest, std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i])));
      }
    return equal;
  }

  const StateRows& a_;
  const StateRows& b_;
};

std::vector<RowDifference> different_rows(Snapshot& first, Snapshot& second) {
  const StateRows a(first.state), b(second.state);
  const auto &ours = a.image().spec.layers, &theirs = b.image().spec.layers;
  std::vector<RowDifference> found;
  for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i) {
    if (ours[i].kv_heads != theirs[i].kv_heads || ours[i].head_dim != theirs[i].head_dim) continue;
    const RowDifference rows = RowComparison(a, b).layer(static_cast<int>(i));
    if (rows.different > 0 || rows.only_first > 0 || rows.only_second > 0) found.push_back(rows);
  }
  return found;
}

void print_json(const std::vector<Field>& fields, std::int64_t common, const std::vector<RowDifference>& rows,
                bool same) {
  Json list = Json::object(), layers = Json::array();
  for (const Field& field : fields) list.set(field.name, Json::array(std::vector{field.first, field.second}));
  for (const RowDifference& row : rows) {
    Json item = Json::object();
    item.set("layer", row.layer)
        .set("common_rows", row.common)
        .set("only_first", row.only_first)
        .set("only_second", row.only_second)
        .set("different_rows", row.different)
        .set("first_different", row.first_different)
        .set("largest_key_difference", row.keys)
        .set("largest_value_difference", row.values);
    layers.push(std::move(item));
  }
  Json json = Json::object();
  json.set("same", same)
      .set("fields", std::move(list))
      .set("common_tokens", common)
      .set("layers", std::move(layers));
  write_result(json.text() + "\n");
}

}  // namespace

bool print_state_diff(Snapshot& first, Snapshot& second, const Arguments& arguments) {
  const std::vector<Field> fields = different_fields(first, second);
  const auto &a = first.extras.tokens, &b = second.extras.tokens;
  const auto apart = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const std::int64_t common = apart.first - a.begin();
  const std::vector<RowDifference> rows = different_rows(first, second);
  const bool same = fields.empty() && rows.empty() && a == b;
  if (arguments.json) {
    print_json(fields, common, rows, same);
    return same;
  }
  if (same) {
    write_result("the same: spec, tokens, rows and logits, bit for bit\n");
    return true;
  }
  std::string text;
  for (const Field& field : fields) text += cat(field.name, ": ", field.first, " | ", field.second, "\n");
  if (a != b)
    text += cat("tokens: the first ", count_text(common), " are the same, of ",
                count_text(static_cast<std::int64_t>(a.size())), " | ",
                count_text(static_cast<std::int64_t>(b.size())), "\n");
  for (const RowDifference& row : rows) {
    text += cat("layer ", row.layer, ": ", count_text(row.different), " of ", count_text(row.common),
                " common rows differ");
    if (row.first_different)
      text += cat(", from position ", count_text(*row.first_different), " on; at most by ",
                  number_text(row.keys, 6), " in keys, ", number_text(row.values, 6), " in values");
    if (row.only_first > 0 || row.only_second > 0)
      text += cat("; ", count_text(row.only_first), " | ", count_text(row.only_second),
                  " rows that the other lacks");
    text += "\n";
  }
  write_result(text);
  return false;
}

}  // namespace kvtide
