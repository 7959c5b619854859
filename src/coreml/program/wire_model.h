// wire_model.h: a Model message: description and program, or the stages of a pipeline.
//
// Errors: bad_format, unsupported (a model that is no ML program); see wire.h. Thread rules: one thread.
// Source: coremltools, mlmodel/format/Model.proto.
#pragma once

#include <cstddef>
#include <span>

#include "coreml/program/package.h"
#include "coreml/program/weight_files.h"

namespace kvtide::coreml {

// `source`: for messages, and the path of what is read.
Package read_model(std::span<const std::byte> bytes, const std::string& source, WeightFiles& weights);

}  // namespace kvtide::coreml
