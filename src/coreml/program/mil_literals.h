// mil_literals.h: constants as MIL text has them.
//
//   tensor<fp16, [2, 2]>([[0x1p+0, -0x1.8p-1], [inf, 0x0p+0]])
//   string("valid")   int32(-1)   tensor<string, []>("x")
//   tensor<int4, [8, 8]>(BLOBFILE(path = string("@model_path/weights/weight.bin"), offset = uint64(64)))
//
// Errors: bad_format, unsupported; see mil_lexer.h. Thread rules: one thread.
#pragma once

#include "coreml/program/mil_lexer.h"
#include "coreml/program/program.h"
#include "coreml/program/weight_files.h"

namespace kvtide::coreml {

Value read_mil_value(MilLexer& lexer, WeightFiles& weights);  // with its type before it

}  // namespace kvtide::coreml
