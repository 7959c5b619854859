// wire_description.h: a model's description as protobuf has it.
//
// Errors: bad_format; see wire.h. Thread rules: one thread.
// Source: coremltools, mlmodel/format/Model.proto and FeatureTypes.proto.
#pragma once

#include "coreml/program/description.h"
#include "coreml/program/wire.h"

namespace kvtide::coreml {

// Of a ModelDescription. Lists without functions around them become those of one without a name.
void read_description(WireMessage message, Description& into);

}  // namespace kvtide::coreml
