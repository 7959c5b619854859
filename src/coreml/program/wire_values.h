// wire_values.h: types and constants of a program as protobuf has them.
//
// Errors: bad_format, unsupported; see wire.h. Thread rules: one thread.
// Source: coremltools, mlmodel/format/MIL.proto.
#pragma once

#include "coreml/program/program.h"
#include "coreml/program/weight_files.h"
#include "coreml/program/wire.h"

namespace kvtide::coreml {

inline constexpr std::int64_t kMostRank = 32;
inline constexpr std::uint64_t kMostStateElements = std::uint64_t{1} << 40;

ValueType read_type(WireMessage message);        // ValueType
NamedType read_named_type(WireMessage message);  // NamedValueType
Value read_value(WireMessage message, WeightFiles& weights);

}  // namespace kvtide::coreml
