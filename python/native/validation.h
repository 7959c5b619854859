// validation.h: kvtide._native.validate: models and references that are Python objects, judged by the
// library.
#pragma once

#include <nanobind/nanobind.h>

namespace kvtide::python {

void bind_validation(nanobind::module_& module);

}  // namespace kvtide::python
