// heads.h: head tables for Python: known, measured, read from a file.
#pragma once

#include <nanobind/nanobind.h>

namespace kvtide::python {

void bind_heads(nanobind::module_& module);

}  // namespace kvtide::python
