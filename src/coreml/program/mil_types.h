// mil_types.h: types as MIL text has them: "tensor<fp16, [1, ?]>", "int32", "state<tensor<fp16, [8]>>", "dict<string, list<int32, ?>>".
//
// Errors: bad_format; see mil_lexer.h. Thread rules: one thread.
#pragma once

#include "coreml/program/mil_lexer.h"
#include "coreml/program/program.h"

namespace kvtide::coreml {

bool at_mil_type(const MilLexer& lexer);  // a type begins here, as far as its first word and sign say
ValueType read_mil_type(MilLexer& lexer, int depth = 0);
// Types and constants in each other.
void check_mil_depth(const MilLexer& lexer, int depth);

}  // namespace kvtide::coreml
