// check_program.h: what every program has to hold, whichever form it was read from.
//
// A name is made once, before anything uses it, in its block or in one around it; inputs of a function and of the
// description agree. What operations need is not known here.
// Errors: bad_format. Thread rules: pure functions.
#pragma once

#include <string_view>

#include "coreml/program/description.h"
#include "coreml/program/program.h"

namespace kvtide::coreml {

// How messages say where something stands: by fields of the protobuf message, or by lines of a text.
inline constexpr std::size_t kMostFunctions = 1024;  // of a program
inline constexpr std::size_t kMostFeatures = 4096;   // inputs, outputs, of a function each

enum class Places { fields, lines };

void check_program(const Program& program, Places places, std::string_view path);

// Functions and their lists against those of the program. `path`: of the description.
void check_description(const Description& description, const Program& program, std::string_view path);

}  // namespace kvtide::coreml
