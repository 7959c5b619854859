// model.h: a kvtide::Model as Python holds it: shared, so that closing it does not pull it from under a
// session.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "kvtide/model.h"

namespace kvtide::python {

class PyModel {
 public:
  PyModel(const std::string& path, const ModelOptions& options);
  // Throws Misuse once closed.
  std::shared_ptr<const Model> open() const;
  void close() { model_.reset(); }
  bool closed() const { return model_ == nullptr; }

 private:
  std::shared_ptr<const Model> model_;
};

void bind_model(nanobind::module_& module);

}  // namespace kvtide::python
