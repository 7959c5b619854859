// chat_template.h: kvtide._native.ChatTemplate, which kvtide.ChatTemplate wraps.
#pragma once

#include <nanobind/nanobind.h>

namespace kvtide::python {

void bind_chat_template(nanobind::module_& module);

}  // namespace kvtide::python
