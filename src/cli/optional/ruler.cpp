// kvtide ruler: things to find, follow and count, asked for at the end of a text: what memories of several sizes
// answer, beside a full cache and beside no text at all.
#include "eval/ruler.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/arguments/procedural_options.h"
#include "cli/commands/choose_heads.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/interrupt.h"
#include "cli/commands/loading.h"
#include "cli/optional/comparison.h"
#include "cli/optional/optional_actions.h"
#include "cli/optional/ruler_answers.h"
#include "cli/output/kv_cost.h"
#include "cli/output/output_file.h"
#include "cli/output/progress.h"
#include "cli/output/terminal.h"
#include "eval/compare.h"
#include "eval/control.h"
#include "kvtide/error.h"
#include "model/loaded_model.h"

namespace kvtide {
namespace {

void add_answers(TaskAnswers& to, const Comparison& comparison, std::int64_t session,
                 std::span<const PosRange> answers) {
  double nll = 0.0, tokens = 0.0, right = 0.0;
  for (const PosRange& range : answers) {
    const auto size = static_cast<double>(range.size());
    nll += comparison.probe(session, range) * size;
    tokens += size;
    right += comparison.foreseen(session, range) ? 1.0 : 0.0;
  }
  to.nll.push_back(nll / tokens);
  to.right.push_back(right / static_cast<double>(answers.size()));
}

RulerTask task_named(const std::string& name) {
  std::string list;
  for (std::size_t i = 0; i < std::size(kRulerTasks); ++i) {
    if (name == kRulerTasks[i]) return static_cast<RulerTask>(i);
    list += cat(i == 0 ? "" : ", ", kRulerTasks[i]);
  }
  throw Error(ErrorCode::invalid_argument, cat("--tasks: there are ", list, ", not ", quoted(name)));
}

class Ruler {
 public:
  Ruler(const Arguments& arguments, const Model& model)
      : arguments_(arguments),
        model_(model),
        heads_(arguments.ratios.empty() ? heads_for(arguments, model) : choose_heads(arguments, model)) {
    const auto longest = *std::max_element(arguments.lengths.begin(), arguments.lengths.end());
    prose_ = filler_for(arguments, model, longest + longest / 4);
    for (const std::string& name : arguments.tasks) tasks_.push_back(task_named(name));
    for (std::size_t task = 0; tasks_.size() < (arguments.tasks.empty() ? kTasksOfRuler : 0); ++task)
      tasks_.push_back(static_cast<RulerTask>(task));
    for (const std::int64_t length : arguments.lengths)  // refused before anything is read
      for (const RulerTask task : tasks_) sample(task, length, 0);
  }

  std::vector<TaskCell> run() {
    Progress progress("ruler");
    std::vector<TaskCell> cells;
    double whole = 0.0, done = 0.0;
    const auto per_length =
        static_cast<double>(arguments_.samples * static_cast<std::int64_t>(tasks_.size()));
    for (const std::int64_t length : arguments_.lengths) whole += static_cast<double>(length) * per_length;
    for (const std::int64_t length : arguments_.lengths) {
      std::vector<TaskMemory> memories = memories_of(length);
      std::vector<Session> sessions;
      sessions.emplace_back(model_, full_cache(model_, memories[0].options, length));
      for (const TaskMemory& memory : memories) sessions.emplace_back(model_, memory.options);
      for (const RulerTask task : tasks_) {
        TaskCell cell{task, length, {}, {}, memories};
        for (std::int64_t i = 0; i < arguments_.samples; ++i) {
          const RulerSample text = sample(task, length, i);
          measure(cell, sessions, text, [&](double share) {
            progress.update((done + share * static_cast<double>(length)) / whole);
            return !interrupted();
          });
          done += static_cast<double>(length);
        }
        cells.push_back(std::move(cell));
      }
    }
    return cells;
  }

  // Memories that were not measured, and why not.
  const std::vector<std::string>& left_out() const { return left_out_; }

  // Sample i of a batch, the same whenever it is made.
  RulerSample sample(RulerTask task, std::int64_t length, std::int64_t i) const {
    const auto seed =
        static_cast<std::uint64_t>(arguments_.first_sample + i) * 64 + static_cast<std::uint64_t>(task);
    return ruler_sample(model_.tokenizer(), prose_, task, length, seed);
  }

 private:
  // Those that exist: a share of a short text's bytes may be too few for any.
  std::vector<TaskMemory> memories_of(std::int64_t length) {
    std::vector<TaskMemory> memories;
    std::optional<Error> refused;
    if (arguments_.ratios.empty()) {
      memories.push_back({"this", policy_for(arguments_, model_, heads_, length), {}, {}});
      return memories;
    }
    const std::int64_t all = *kv_cost(model_.internals().config, DType::f16, length);
    for (const std::int64_t ratio : arguments_.ratios) {
      SessionOptions options = arguments_.session;
      options.procedural = procedural_options(arguments_);
      if (!options.procedural) options.procedural.emplace();
      options.procedural->budget = all / ratio;
      options.procedural->budget_for = length;
      options.procedural->heads = heads_;
      try {
        static_cast<void>(Session(model_, options));
        memories.push_back({cat(ratio, "x"), options, {}, {}});
      } catch (const Error& error) {
        if (error.code() != ErrorCode::invalid_argument) throw;
        left_out_.push_back(cat(ratio, "x of ", count_text(length), " tokens: ", error.what()));
        refused = error;
      }
    }
    if (memories.empty()) throw Error(*refused);
    return memories;
  }

  template <class Report>
  void measure(TaskCell& cell, std::vector<Session>& sessions, const RulerSample& text,
               const Report& report) {
    CompareOptions options;
    options.probes = text.answers;
    options.score_from = options.kl_every = static_cast<std::int64_t>(text.tokens.size()) + 1;
    options.progress = [&](std::int64_t read, std::int64_t total) {
      return report(static_cast<double>(read) / static_cast<double>(total));
    };
    std::vector<Session*> all;
    for (Session& session : sessions) {
      session.clear();
      all.push_back(&session);
    }
    const Comparison comparison = compare(all, text.tokens, options);
    add_answers(cell.full, comparison, 0, text.answers);
    for (std::size_t m = 0; m < cell.memories.size(); ++m) {
      add_answers(cell.memories[m].answers, comparison, static_cast<std::int64_t>(m) + 1, text.answers);
      cell.memories[m].kv_bytes.push_back(sessions[m + 1].memory().kv);
    }
    measure_without_text(cell, sessions[0], text);
  }

  // The question behind the first token alone.
  static void measure_without_text(TaskCell& cell, Session& session, const RulerSample& text) {
    std::vector<TokenId> asked{text.tokens.front()};
    asked.insert(asked.end(), text.tokens.begin() + text.question, text.tokens.end());
    std::vector<PosRange> answers;
    for (const PosRange& range : text.answers)
      answers.push_back({range.first - text.question + 1, range.last - text.question + 1});
    session.clear();
    CompareOptions options;
    options.probes = answers;
    options.score_from = options.kl_every = static_cast<std::int64_t>(asked.size()) + 1;
    Session* one[] = {&session};
    add_answers(cell.nothing, compare(one, asked, options), 0, answers);
  }

  const Arguments& arguments_;
  const Model& model_;
  std::vector<std::string> left_out_;
  HeadTable heads_;
  std::vector<RulerTask> tasks_;
  std::vector<TokenId> prose_;
};

void write_samples(const Arguments& arguments, const Ruler& ruler, const std::vector<TaskCell>& cells) {
  OutputFile file(arguments.out);
  for (const TaskCell& cell : cells)
    for (std::int64_t i = 0; i < arguments.samples; ++i)
      file.write(sample_line(cell, ruler.sample(cell.task, cell.length, i), arguments.first_sample + i,
                             static_cast<std::size_t>(i)));
  file.commit();
}

}  // namespace

int ruler_command(const Arguments& arguments) {
  if (!arguments.out.empty()) OutputFile::check(arguments.out);
  const Model model = load_model(arguments.model, arguments);
  Ruler ruler(arguments, model);
  const std::vector<TaskCell> cells = ruler.run();
  if (!arguments.out.empty()) write_samples(arguments, ruler, cells);
  write_result(arguments.json ? task_cells_json(model, arguments, cells, ruler.left_out())
                              : task_cells_text(cells, ruler.left_out()));
  return kExitFine;
}

}  // namespace kvtide
