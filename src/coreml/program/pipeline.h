// pipeline.h: a pipeline as one program, so that whatever runs programs runs pipelines, too.
//
// Its function takes what the pipeline takes and does what the stages do, one after another. What a stage gives, later
// stages find by name; states of one name are one state. Values inside stage N are called "stageN_" and their old name.
// Errors: bad_format (a stage takes what nothing gives, types that do not fit, states of one name and two types).
// Thread rules: pure functions.
// Source: coremltools' Model.proto, messages Model and Pipeline.
#pragma once

#include "coreml/program/package.h"

namespace kvtide::coreml {

// A package without stages that computes what `pipeline` describes. It shares the weights.
Package as_one_program(const Package& pipeline);

}  // namespace kvtide::coreml
