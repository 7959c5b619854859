#include "cli/optional/table_cell.h"

#include <cmath>
#include <limits>

#include "base/json/json_fields.h"
#include "base/text.h"
#include "cli/commands/input_text.h"
#include "cli/output/columns.h"
#include "cli/output/output_file.h"
#include "cli/output/terminal.h"
#include "kvtide/error.h"
#include "model/model_title.h"

namespace kvtide {
namespace {

constexpr double kMostDistinctLost = 0.2, kMostLoss = 0.02, kMostSwing = 4.0 * (1 << 20), kMostDrift = 0.01;

std::string number_or_dash(double value, int digits) {
  return std::isfinite(value) ? number_text(value, digits) : "-";
}
std::string mib(double bytes) { return number_or_dash(bytes / (1 << 20), 1); }

}  // namespace

double TableCell::at(const std::string& name) const {
  const auto found = figures.find(name);
  return found == figures.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
}

std::optional<TableCell> read_cell(const std::string& path) {
  try {
    const JsonValue json = JsonValue::parse(read_text_file(path).text, path);
    const JsonFields fields(json, path);
    TableCell cell;
    cell.model = fields.required_text("model");
    cell.policy = fields.required_text("policy");
    cell.note = fields.required_text("note");
    for (const auto& [name, value] : *json.object())
      if (const auto number = value.number()) cell.figures[name] = *number;
    cell.context = static_cast<std::int64_t>(cell.figures.at("ctx"));
    cell.bounded = cell.figures.at("bounded") != 0.0;
    cell.figures.erase("ctx");
    cell.figures.erase("bounded");
    return cell;
  } catch (const Error&) {
    return std::nullopt;
  } catch (const std::out_of_range&) {
    return std::nullopt;
  }
}

Json cell_json(const TableCell& cell) {
  Json json = Json::object();
  json.set("model", cell.model)
      .set("policy", cell.policy)
      .set("note", cell.note)
      .set("ctx", cell.context)
      .set("bounded", cell.bounded ? 1 : 0);
  for (const auto& [name, value] : cell.figures) json.set(name, value);
  return json;
}

void write_cell(const std::string& path, const TableCell& cell) {
  OutputFile::write_whole(path, cell_json(cell).text() + "\n");
}

Gates gates_of(const TableCell& cell, const TableCell& control) {
  Gates gates;
  const auto ask = [](double value, double limit) {
    return std::isfinite(value) ? std::optional(value <= limit) : std::nullopt;
  };
  gates.collapse = ask(control.at("distinct_3") - cell.at("distinct_3"), kMostDistinctLost);
  gates.loss = ask(cell.at("dppl"), kMostLoss);
  if (cell.bounded) gates.resident = ask(cell.at("rss_swing"), kMostSwing);
  gates.drift = ask(cell.at("dppl_q4") - cell.at("dppl_q2"), kMostDrift);
  return gates;
}

std::string gates_text(const Gates& gates) {
  std::string passed, failed;
  const auto add = [&](char name, const std::optional<bool>& gate) {
    if (!gate) return;
    std::string& list = *gate ? passed : failed;
    list += cat(list.empty() ? "" : " ", name);
  };
  add('A', gates.collapse);
  add('B', gates.loss);
  add('C', gates.resident);
  add('D', gates.drift);
  if (failed.empty()) return passed.empty() ? "-" : cat(passed, " pass");
  return cat(passed, passed.empty() ? "" : " pass, ", failed, " fail");
}

std::string gate_limits() {
  return cat(
      "A: no collapse: of the runs of three tokens in a greedy continuation, the share of different ones is "
      "at most ",
      number_text(kMostDistinctLost, 2), " below the full cache's. B: dPPL at most ",
      percent_text(kMostLoss, 1),
      ". C, of memories that stop growing: from the token at which 95% of the most KV is held, the "
      "resident set moves by at most ",
      number_text(kMostSwing / (1 << 20), 0), " MiB. D: dPPL of the last quarter at most ",
      number_text(100.0 * kMostDrift, 1), " points above that of the second.");
}

std::vector<std::vector<std::string>> table_rows(const std::vector<TableCell>& cells) {
  std::vector<std::vector<std::string>> rows = {
      {"model", "tokens", "memory", "KV MiB", "RSS MiB", "read tok/s", "write tok/s", "seal ms/token", "PPL",
       "dPPL", "95% of it", "by quarter", "KL", "same top", "copy", "key", "gates"}};
  const TableCell* control = nullptr;
  for (const TableCell& cell : cells) {
    if (control == nullptr || control->model != cell.model || control->context != cell.context)
      control = &cell;
    std::vector<std::string> row = {model_title(cell.model), count_text(cell.context), cell.policy};
    if (!cell.note.empty()) {
      row.push_back(cell.note);
      row.resize(rows.front().size(), "");
      rows.push_back(row);
      continue;
    }
    std::string quarters;
    for (const char* quarter : {"dppl_q1", "dppl_q2", "dppl_q3", "dppl_q4"})
      quarters += cat(quarters.empty() ? "" : " ", percent_text(cell.at(quarter), 1));
    const bool copy_fails = control->at("copy_nll") >= control->at("copy_chance"),
               key_fails = control->at("key_right") == 0.0;
    const bool own = &cell == control;
    row.insert(
        row.end(),
        {mib(cell.at("kv_bytes")), mib(cell.at("rss_bytes")), number_or_dash(cell.at("prefill_tok_s"), 0),
         number_or_dash(cell.at("decode_tok_s"), 1), number_or_dash(cell.at("seal_ms_token"), 3),
         number_or_dash(cell.at("ppl"), 3), own ? "" : percent_text(cell.at("dppl")),
         own ? "" : cat(percent_text(cell.at("dppl_low")), " to ", percent_text(cell.at("dppl_high"))),
         own ? "" : quarters, own ? "" : number_or_dash(cell.at("kl"), 4),
         own ? "" : cat(number_or_dash(100.0 * cell.at("agreement"), 1), "%"),
         cat(number_or_dash(cell.at("copy_nll"), 2), copy_fails ? " (control fails)" : ""),
         cat(cell.at("key_right") != 0.0 ? "right " : "wrong ", number_or_dash(cell.at("key_nll"), 2),
             key_fails ? " (control fails)" : ""),
         own ? "" : gates_text(gates_of(cell, *control))});
    rows.push_back(row);
  }
  return rows;
}

}  // namespace kvtide
