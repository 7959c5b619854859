#include "cli/optional/ruler_answers.h"

#include "base/json/json.h"
#include "base/text.h"
#include "cli/output/columns.h"
#include "cli/output/session_words.h"
#include "cli/output/terminal.h"

namespace kvtide {
namespace {

// The full cache has to be ahead of no text by so many nats per token, the interval counted, to show anything.
constexpr double kClearly = 0.5;

SampleMean difference(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> apart;
  for (std::size_t i = 0; i < a.size(); ++i) apart.push_back(a[i] - b[i]);
  return mean_of(apart);
}

std::string_view name_of_task(RulerTask task) { return kRulerTasks[static_cast<std::size_t>(task)]; }
std::string share_text(double share) { return cat(number_text(100.0 * share, 0), "%"); }
std::string with_interval(const SampleMean& m) {
  return cat(m.mean < 0.0 ? "" : "+", number_text(m.mean, 2), " ± ", number_text(m.half_width, 2));
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

Json sample_answers_json(const TaskAnswers& a, std::size_t i) {
  Json json = Json::object();
  json.set("nll", a.nll[i]).set("right", a.right[i]);
  return json;
}

}  // namespace

bool TaskCell::floor() const {
  const SampleMean gain = difference(nothing.nll, full.nll);
  return gain.mean - gain.half_width < kClearly;
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
      line(memory.name, memory.answers, bytes_text(memory.kv_bytes.back()), true);
  }
  std::string notes;
  for (const std::string& note : left_out) notes += cat("left out: ", note, "\n");
  return cat(columns_text(table),
             "nats: -ln p per token of the answers; right: answers that greedy decoding writes. Differences "
             "are paired, with 95% intervals over\nsamples. floor: the full cache is not clearly ahead of no "
             "text, so memories are not compared.\n",
             notes);
}

std::string task_cells_json(const Model& model, const Arguments& arguments,
                            const std::vector<TaskCell>& cells, const std::vector<std::string>& left_out) {
  Json items = Json::array(), notes = Json::array();
  for (const std::string& note : left_out) notes.push(note);
  for (const TaskCell& cell : cells) {
    Json item = Json::object(), memories = Json::array();
    for (const TaskMemory& memory : cell.memories) {
      Json one = task_answers_json(memory.answers, cell.full);
      one.set("memory", memory.name).set("kv_bytes", memory.kv_bytes.back());
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

std::string sample_line(const TaskCell& cell, const RulerSample& text, std::int64_t number, std::size_t i) {
  Json answers = Json::array(), memories = Json::array();
  for (const PosRange& range : text.answers) {
    Json pair = Json::array();
    pair.push(range.first).push(range.last);
    answers.push(std::move(pair));
  }
  for (const TaskMemory& memory : cell.memories) {
    Json one = sample_answers_json(memory.answers, i);
    one.set("memory", memory.name).set("kv_bytes", memory.kv_bytes[i]);
    memories.push(std::move(one));
  }
  Json json = Json::object();
  json.set("task", name_of_task(cell.task))
      .set("ctx", cell.length)
      .set("sample", number)
      .set("tokens", Json::array(text.tokens))
      .set("question", text.question)
      .set("answers", std::move(answers))
      .set("nothing", sample_answers_json(cell.nothing, i))
      .set("full", sample_answers_json(cell.full, i))
      .set("memories", std::move(memories));
  return json.text(false) + "\n";
}

}  // namespace kvtide
