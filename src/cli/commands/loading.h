// loading.h: a model as the flags ask, and a line for each thing about its files that a user should know.
#pragma once

#include <string>

#include "cli/arguments/arguments.h"
#include "kvtide/model.h"

namespace kvtide {

// `path`: of which of the models. Throws as Model does.
Model load_model(const std::string& path, const Arguments& arguments, std::int64_t context = 0);

}  // namespace kvtide
