// mil_printer.h: a program as MIL text, program(1.3). What is printed reads back as the same program.
//
// Weights of files stay where they are: their constants name file and offset.
// Errors: unsupported (constants of 8-bit floats, which stand in weight files only).
// Thread rules: pure functions.
#pragma once

#include <string>

#include "coreml/program/description.h"
#include "coreml/program/program.h"

namespace kvtide::coreml {

// `description`: adds the shapes that inputs may have, as FlexibleShapeInformation; may be nullptr.
std::string mil_text(const Program& program, const Description* description = nullptr);

// Says of every operation of a program that was no text which line of mil_text(program, description) it begins in. A program that
// cannot be printed stays as it is.
void number_lines(Program& program, const Description* description);

std::string mil_type_text(const ValueType& type);  // "tensor<fp16, [1, ?]>", "int32"

}  // namespace kvtide::coreml
