// wire_program.h: a program as protobuf has it.
//
// Errors: bad_format, unsupported; see wire.h. Thread rules: one thread.
// Source: coremltools, mlmodel/format/MIL.proto.
#pragma once

#include "coreml/program/program.h"
#include "coreml/program/weight_files.h"
#include "coreml/program/wire.h"

namespace kvtide::coreml {

Program read_program(WireMessage message, WeightFiles& weights);

}  // namespace kvtide::coreml
