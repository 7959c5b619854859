// batch.h: a kvtide::Batch as Python holds it.
//
// Thread rules: those of PySession, for the batch and for every session of a step.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

#include "arguments.h"
#include "kvtide/session.h"
#include "model.h"
#include "turn.h"

namespace kvtide::python {

class PyBatch {
 public:
  PyBatch(const PyModel& model, const BatchOptions& options);
  ~PyBatch();
  PyBatch(const PyBatch&) = delete;
  PyBatch& operator=(const PyBatch&) = delete;

  // Per session (tokens read, code of its error or None, message). `ids`: arrays of int32, one per session.
  nanobind::list step(const Sequence<nanobind::any>& sessions, const Sequence<nanobind::any>& ids,
                      const Sequence<bool>& need_logits);
  void close();
  bool closed() const { return batch_ == nullptr; }
  const BatchOptions& options() const { return options_; }

 private:
  std::shared_ptr<const Model> model_;  // outlives the batch
  std::unique_ptr<Batch> batch_;
  BatchOptions options_;
  Turns turns_{"batch"};
};

void bind_batch(nanobind::module_& module);

}  // namespace kvtide::python
