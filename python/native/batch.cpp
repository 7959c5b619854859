#include "batch.h"

#include <nanobind/stl/unique_ptr.h>

#include <memory>
#include <vector>

#include "kvtide/error.h"
#include "misuse.h"
#include "running.h"
#include "session.h"

namespace nb = nanobind;

namespace kvtide::python {

PyBatch::PyBatch(const PyModel& model, const BatchOptions& options) : model_(model.open()) {
  const Running running;
  const WithoutGil others_run;
  batch_ = std::make_unique<Batch>(*model_, options);
  options_ = batch_->options();
}

PyBatch::~PyBatch() {
  if (turns_.abandoned()) static_cast<void>(batch_.release());
}

void PyBatch::close() {
  const Turn turn(turns_);
  batch_.reset();
}

nb::list PyBatch::step(const Sequence<nb::any>& sessions, const Sequence<nb::any>& ids,
                       const Sequence<bool>& need_logits) {
  if (!batch_) throw Misuse("closed", "this batch was closed");
  const Turn turn(turns_);
  std::vector<PySession*> members;
  for (const nb::handle session : sessions) members.push_back(nb::cast<PySession*>(session));
  std::vector<std::vector<TokenId>> tokens;  // nobody changes these meanwhile
  for (const nb::handle array : ids) {
    const auto given = nb::cast<Ids>(array);
    tokens.emplace_back(given.data(), given.data() + given.size());
  }
  const std::vector<bool> wanted = vector_of<bool>(need_logits, "need_logits");
  std::vector<std::unique_ptr<Turn>> turns;
  std::vector<Batch::Item> items;
  for (std::size_t i = 0; i < members.size(); ++i) {
    members[i]->check_open();
    for (std::size_t other = 0; other < i; ++other)
      if (members[other] == members[i])
        throw Error(ErrorCode::invalid_argument, "sessions " + std::to_string(other) + " and " +
                                                     std::to_string(i) + " of the step are one");
    turns.push_back(std::make_unique<Turn>(members[i]->turns()));
    items.push_back({&members[i]->session(), tokens.at(i), wanted.at(i)});
  }
  std::vector<Batch::Outcome> outcomes;
  {
    const WithoutGil others_run;
    outcomes = batch_->step(items);
  }
  for (std::size_t i = 0; i < members.size(); ++i)
    if (outcomes[i].read > 0) members[i]->note_step();
  nb::list results;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Batch::Outcome& outcome = outcomes[i];
    const nb::object code = outcome.error ? nb::cast(error_code_name(outcome.error->code())) : nb::none();
    const nb::object message = outcome.error ? nb::cast(outcome.error->what()) : nb::none();
    results.append(nb::make_tuple(outcome.read, code, message));
  }
  return results;
}

void bind_batch(nb::module_& module) {
  nb::class_<PyBatch>(module, "Batch", "Several sessions in one pass; kvtide.Batch wraps it.")
      .def(
          "__init__",
          [](PyBatch* self, const PyModel& model, int threads, std::int64_t max_step,
             const nb::str& kernels) {
            new (self) PyBatch(model, {threads, max_step, text_of(kernels)});
          },
          nb::arg("model"), nb::arg("threads"), nb::arg("max_step"), nb::arg("kernels"))
      .def("step", &PyBatch::step, nb::arg("sessions"), nb::arg("ids"), nb::arg("need_logits"),
           nb::sig("def step(self, sessions: list[Session], ids: list[numpy.typing.NDArray[numpy.int32]], "
                   "need_logits: list[bool]) -> list[tuple[int, str | None, str | None]]"))
      .def("close", &PyBatch::close)
      .def_prop_ro("closed", &PyBatch::closed)
      .def_prop_ro("threads", [](const PyBatch& self) { return self.options().threads; })
      .def_prop_ro("max_step", [](const PyBatch& self) { return self.options().max_step; });
}

}  // namespace kvtide::python
