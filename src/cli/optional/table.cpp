// kvtide table: models x lengths x memories: what each holds, how fast it is, what it loses and what it
// recalls.
//
// Every cell is measured by itself and written as soon as it is done; a cell that is there is not measured
// again. Speed and memory come from a reading of the plain text, quality from a second one beside a full
// cache.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/json/json.h"
#include "base/text.h"
#include "cli/commands/cache_folder.h"
#include "cli/commands/choose_heads.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/input_text.h"
#include "cli/commands/interrupt.h"
#include "cli/commands/loading.h"
#include "cli/optional/comparison.h"
#include "cli/optional/optional_actions.h"
#include "cli/optional/table_cell.h"
#include "cli/optional/table_policies.h"
#include "cli/output/columns.h"
#include "cli/output/memory_reading.h"
#include "cli/output/output_file.h"
#include "cli/output/progress.h"
#include "cli/output/terminal.h"
#include "eval/compare.h"
#include "eval/control.h"
#include "eval/planted_text.h"
#include "eval/recall.h"
#include "eval/trial.h"
#include "kvtide/error.h"
#include "model/identity.h"

namespace kvtide {
namespace {

constexpr int kVersion = 1;  // of what a cell holds and how it is measured
constexpr std::int64_t kContinuation = 256;
constexpr double kTrialShare = 0.4;  // of a cell's time

// A table is read elsewhere: folders of this machine do not belong into it.
std::string file_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

void make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST)
    throw Error(ErrorCode::io, cat(quoted(path), ": the folder cannot be made: ", std::strerror(errno)));
}

class Table {
 public:
  Table(const Arguments& arguments, const InputText& input) : arguments_(arguments), input_(input) {
    make_folder(arguments.out);
    make_folder(arguments.out + "/cells");
  }

  void add_model(const std::string& path) {
    Arguments own = arguments_;
    own.model = path;
    own.no_special = true;
    const Model model = load_model(path, arguments_);
    const std::string hash = model_identity(model, cache_folder(own)).at("model");
    const std::vector<TokenId> text = encode_text(model.tokenizer(), input_, own);
    // As many tokens as the strings and the pass key take, whatever the filler.
    planted_ = static_cast<std::int64_t>(plant(model.tokenizer(), {}, {}).tokens.size());
    for (const std::int64_t context : arguments_.lengths) {
      if (context <= planted_ + 2 * kContinuation)
        throw Error(ErrorCode::invalid_argument, cat("--ctx: a cell needs more than ",
                                                     planted_ + 2 * kContinuation, " tokens, not ", context));
      if (static_cast<std::int64_t>(text.size()) < context)
        throw Error(ErrorCode::invalid_argument, cat(input_.name, ": has ", text.size(), " tokens; --ctx ",
                                                     context, " needs a longer text"));
    }
    const HeadTable heads = choose_heads(own, model);
    for (const std::int64_t context : arguments_.lengths) {
      const auto policies = policies_of(arguments_, model, heads, context);
      for (std::size_t i = 0; i < policies.size(); ++i) {
        stop_if_interrupted(
            "table: stopped; finished cells are kept, and the same command goes on from there");
        const TablePolicy& policy = policies[i];
        const std::string key = text_hash(cat(kVersion, " ", hash, " ", text_hash(input_.text), " ", context,
                                              " ", policy.name, " ", options_key(policy.options)));
        const std::string file = cat(arguments_.out, "/cells/", key.substr(0, 24), ".json");
        if (auto known = read_cell(file)) {
          cells_.push_back(std::move(*known));
          continue;
        }
        const std::string label = cat(model.title(), " ", count_text(context), " tokens, ", policy.name, " (",
                                      i + 1, " of ", policies.size(), ")");
        TableCell cell = measure(model, text, context, policy, label);
        write_cell(file, cell);
        cells_.push_back(std::move(cell));
        write_table();
      }
    }
  }

  void write_table() const {
    OutputFile::write_whole(arguments_.out + "/table.md", markdown_text());
    OutputFile::write_whole(arguments_.out + "/table.json", json_text());
  }

  std::string markdown_text() const {
    return cat(kvtide::markdown_text(table_rows(cells_)), "\nText: ", file_name(input_.name),
               ". Gates: ", gate_limits(), "\n");
  }
  std::string json_text() const {
    Json list = Json::array();
    const TableCell* control = nullptr;
    for (const TableCell& cell : cells_) {
      if (control == nullptr || control->model != cell.model || control->context != cell.context)
        control = &cell;
      Json item = cell_json(cell);
      const Gates gates = gates_of(cell, *control);
      Json verdicts = Json::object();
      if (&cell != control)
        verdicts.set("A", gates.collapse).set("B", gates.loss).set("C", gates.resident).set("D", gates.drift);
      item.set("gates", std::move(verdicts));
      list.push(std::move(item));
    }
    Json all = Json::object();
    all.set("text", file_name(input_.name)).set("limits", gate_limits()).set("cells", std::move(list));
    return all.text() + "\n";
  }

 private:
  TableCell measure(const Model& model, std::span<const TokenId> text, std::int64_t context,
                    const TablePolicy& policy, const std::string& label) const {
    TableCell cell;
    cell.model = model.name();
    cell.policy = policy.name;
    cell.context = context;
    cell.bounded = policy.bounded;
    cell.note = policy.note;
    if (!cell.note.empty()) return cell;
    Progress progress(label);
    const auto show = [&](double share) {
      progress.update(share);
      return !interrupted();
    };
    {
      give_back_heap();
      Session session(model, policy.options);
      TrialOptions options;
      options.continuation = kContinuation;
      options.resident = quick_rss;
      options.progress = [&](double share) { return show(kTrialShare * share); };
      const Trial trial =
          try_memory(session, text.first(static_cast<std::size_t>(context - kContinuation)), options);
      cell.figures = {{"prefill_tok_s", trial.prefill_tok_s},
                      {"decode_tok_s", trial.decode_tok_s},
                      {"kv_bytes", static_cast<double>(trial.kv_bytes)},
                      {"kv_peak_bytes", static_cast<double>(trial.kv_peak)},
                      {"rss_bytes", static_cast<double>(trial.rss_bytes)},
                      {"rss_swing", static_cast<double>(trial.rss_swing)},
                      {"filled_at", static_cast<double>(trial.filled_at)},
                      {"distinct_1", trial.distinct_1},
                      {"distinct_3", trial.distinct_3}};
      if (policy.options.procedural) cell.figures["seal_ms_token"] = trial.seal_ms_token;
    }
    set_quality(cell, model, text, context, policy, show);
    return cell;
  }

  void set_quality(TableCell& cell, const Model& model, std::span<const TokenId> text, std::int64_t context,
                   const TablePolicy& policy, const std::function<bool(double)>& show) const {
    const PlantedText planted =
        plant(model.tokenizer(), text.first(static_cast<std::size_t>(context - planted_)), {});
    Session full(model, full_cache(model, arguments_.session, context)), session(model, policy.options);
    CompareOptions options;
    options.probes = planted.outside();
    // The token behind the last plant does not exist.
    for (PosRange& probe : options.probes)
      probe.last = std::min(probe.last, static_cast<Pos>(planted.tokens.size()));
    options.progress = [&](std::int64_t done, std::int64_t total) {
      return show(kTrialShare + (1.0 - kTrialShare) * static_cast<double>(done) / static_cast<double>(total));
    };
    Session* both[] = {&full, &session};
    const Comparison comparison = compare(both, planted.tokens, options);
    const auto end = static_cast<Pos>(planted.tokens.size());
    const Score all = comparison.score(1, 0, end);
    auto& f = cell.figures;
    f["ppl"] = all.ppl;
    f["dppl"] = std::exp(all.change.mean) - 1.0;
    f["dppl_low"] = std::exp(all.change.low) - 1.0;
    f["dppl_high"] = std::exp(all.change.high) - 1.0;
    f["kl"] = all.kl;
    f["kl_p99"] = all.kl_p99;
    f["agreement"] = all.agreement;
    for (Pos quarter = 0; quarter < 4; ++quarter)
      f[cat("dppl_q", quarter + 1)] =
          std::exp(comparison.score(1, end * quarter / 4, end * (quarter + 1) / 4).change.mean) - 1.0;
    double copies = 0.0;
    for (const Plant& plant : planted.plants) {
      if (plant.name.starts_with("copy")) {
        f["copy_nll"] += comparison.probe(1, plant.asked);
        ++copies;
        f[cat("copy_nll_", static_cast<std::int64_t>(copies))] = comparison.probe(1, plant.asked);
      } else {
        f["key_nll"] = comparison.probe(1, plant.asked);
        f["key_right"] = comparison.foreseen(1, plant.asked) ? 1.0 : 0.0;
      }
    }
    f["copy_nll"] /= copies;
    f["copy_chance"] = word_chance(model.tokenizer());
  }

  const Arguments& arguments_;
  const InputText& input_;
  std::int64_t planted_ = 0;  // tokens that are no filler, of the current model
  std::vector<TableCell> cells_;
};

}  // namespace

int table_command(const Arguments& arguments) {
  const InputText input = read_document(*arguments.file, arguments);
  Table table(arguments, input);
  for (const std::string& model : arguments.models) table.add_model(model);
  table.write_table();
  write_result(arguments.json ? table.json_text() : table.markdown_text());
  return kExitFine;
}

}  // namespace kvtide
