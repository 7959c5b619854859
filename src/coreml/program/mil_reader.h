// mil_reader.h: a program as MIL text, which compiled models hold: program(1.0) with scalars as tensor<int32, []>, and up to
// program(1.3) with int32.
//
// Operation::line is the line of the text. What coremlc says of shapes (FlexibleShapeInformation) comes back as it stood.
// Errors: bad_format, unsupported: "FILE: line N, column M: WHY". Thread rules: one thread.
// Source: the text of models that Xcode compiled; its words are those of coremltools' MIL.proto.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "coreml/program/program.h"
#include "coreml/program/weight_files.h"

namespace kvtide::coreml {

struct MilText {
  Program program;
  std::vector<std::vector<Attribute>> attributes;  // of each function
};

// `file`: for messages.
MilText read_mil(std::string_view text, const std::string& file, WeightFiles& weights);

}  // namespace kvtide::coreml
