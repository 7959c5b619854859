// kvtide ruler: things to find, follow and count, asked for at the end of a text: what memories of several sizes
// answer, beside a full cache and beside no text at all.
#include "eval/ruler.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "base/text.h"
#include "cli/arguments/procedural_options.h"
#include "cli/commands/choose_heads.h"
#include "cli/commands/commands.h"
#include "cli/commands/comparison.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/interrupt.h"
#include "cli/commands/loading.h"
#include "cli/output/columns.h"
#include "cli/output/kv_cost.h"
#include "cli/output/progress.h"
#include "cli/output/session_words.h"
#include "cli/output/terminal.h"
#include "eval/compare.h"
#include "eval/control.h"
#include "kvtide/error.h"
#include "model/loaded_model.h"

namespace kvtide {
namespace {

// The full cache has to be ahead of no text by so many nats per token, the interval counted, to show anything.
constexpr double kClearly = 0.5;

// What one memory answered, sample by sample.
struct TaskAnswers {
  std::vector<double> nll;    // -ln p per token of the answers
  std::vector<double> right;  // share of answers that greedy decoding writes
};

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

struct TaskMemory {
  std::string name;  // "8x"
  SessionOptions options;
  TaskAnswers answers;
  std::int64_t kv_bytes = 0;
};

SampleMean difference(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> apart;
  for (std::size_t i = 0; i < a.size(); ++i) apart.push_back(a[i] - b[i]);
  return mean_of(apart);
}

struct TaskCell {
  RulerTask task;
  std::int64_t length;
  TaskAnswers full, nothing;  // the full cache; the question alone
  std::vector<TaskMemory> memories;
  // No memory can be told from another where a full cache knows no more than one without the text.
  bool floor() const {
    const SampleMean gain = difference(nothing.nll, full.nll);
    return gain.mean - gain.half_width < kClearly;
  }
};

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
    for (std::size_t task = 0; tasks_.size() < (arguments.tasks.empty() ? std::size(kRulerTasks) : 0); ++task)
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

 private:
  RulerSample sample(RulerTask task, std::int64_t length, std::int64_t i) const {
    const auto seed =
        static_cast<std::uint64_t>(arguments_.first_sample + i) * 64 + static_cast<std::uint64_t>(task);
    return ruler_sample(model_.tokenizer(), prose_, task, length, seed);
  }

  // Those that exist: a share of a short text's bytes may be too few for any.
  std::vector<TaskMemory> memories_of(std::int64_t length) {
    std::vector<TaskMemory> memories;
    std::optional<Error> refused;
    if (arguments_.ratios.empty()) {
      memories.push_back({"this", policy_for(arguments_, model_, heads_, length), {}, 0});
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
        memories.push_back({cat(ratio, "x"), options, {}, 0});
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
      cell.memories[m].kv_bytes = sessions[m + 1].memory().kv;
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

std::string_view name_of_task(RulerTask task) { return kRulerTasks[static_cast<std::size_t>(task)]; }
std::string share_text(double share) { return cat(number_text(100.0 * share, 0), "%"); }
std::string with_interval(const SampleMean& m) {
  return cat(m.mean < 0.0 ? "" : "+", number_text(m.mean, 2), " ± ", number_text(m.half_width, 2));
}

std::string task_cells_text(const std::vector<TaskCell>& cells, const std::vector<std::string>& left_out) {
  std::vector<std::vector<std::string>> table = {
      {"task", "tokens", "memory", "KV", "nats", "above full", "right", "above full"}};
  for (const TaskCell& cell : cells) {
    const auto line = [&](const std::string& name, const TaskAnswers& a, const std::string& bytes,
                          bool compared) {
      const SampleMean right = difference(a.right, cell.full.right);
      table.push_back(
          {std::string(name_of_task(cell.task)), count_text(cell.length), name, bytes,
           number_text(mean_of(a.nll).mean, 2),
           compared ? with_interval(difference(a.nll, cell.full.nll)) : "", share_text(mean_of(a.right).mean),
           compared ? cat(number_text(100.0 * right.mean, 0), " ± ", number_text(100.0 * right.half_width, 0))
                    : ""});
    };
    line("no text", cell.nothing, "", false);
    line(cell.floor() ? "full (floor)" : "full", cell.full, "", false);
    if (cell.floor()) continue;
    for (const TaskMemory& memory : cell.memories)
      line(memory.name, memory.answers, bytes_text(memory.kv_bytes), true);
  }
  std::string notes;
  for (const std::string& note : left_out) notes += cat("left out: ", note, "\n");
  return cat(columns_text(table),
             "nats: -ln p per token of the answers; right: answers that greedy decoding writes. Differences "
             "are paired, with 95% intervals over\nsamples. floor: the full cache is not clearly ahead of no "
             "text, so memories are not compared.\n",
             notes);
}

Json task_answers_json(const TaskAnswers& a, const TaskAnswers& full) {
  const auto pair = [](Json& json, const char* name, const SampleMean& m) {
    json.set(name, m.mean).set(cat(name, "_interval"), m.half_width);
  };
  Json json = Json::object();
  pair(json, "nll", mean_of(a.nll));
  pair(json, "right", mean_of(a.right));
  pair(json, "nll_above_full", difference(a.nll, full.nll));
  pair(json, "right_above_full", difference(a.right, full.right));
  return json;
}

std::string task_cells_json(const Model& model, const Arguments& arguments,
                            const std::vector<TaskCell>& cells, const std::vector<std::string>& left_out) {
  Json items = Json::array(), notes = Json::array();
  for (const std::string& note : left_out) notes.push(note);
  for (const TaskCell& cell : cells) {
    Json item = Json::object(), memories = Json::array();
    for (const TaskMemory& memory : cell.memories) {
      Json one = task_answers_json(memory.answers, cell.full);
      one.set("memory", memory.name).set("kv_bytes", memory.kv_bytes);
      memories.push(std::move(one));
    }
    item.set("task", name_of_task(cell.task))
        .set("ctx", cell.length)
        .set("floor", cell.floor())
        .set("nothing", task_answers_json(cell.nothing, cell.full))
        .set("full", task_answers_json(cell.full, cell.full))
        .set("memories", std::move(memories));
    items.push(std::move(item));
  }
  Json json = Json::object();
  json.set("model", model.name())
      .set("samples", arguments.samples)
      .set("first_sample", arguments.first_sample)
      .set("cells", std::move(items))
      .set("left_out", std::move(notes));
  return json.text() + "\n";
}

}  // namespace

int ruler_command(const Arguments& arguments) {
  const Model model = load_model(arguments.model, arguments);
  Ruler ruler(arguments, model);
  const std::vector<TaskCell> cells = ruler.run();
  write_result(arguments.json ? task_cells_json(model, arguments, cells, ruler.left_out())
                              : task_cells_text(cells, ruler.left_out()));
  return kExitFine;
}

}  // namespace kvtide
