// python_call.h: a call as Python writes it, find(name="x", near=[1, 2]), as Gemma's models do in ```tool_code.
//
// Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvtide::serve {

struct PythonCall {
  std::string name, arguments;  // the latter a JSON object
};

// Keywords with literals, also within print(...). nullopt: something else.
std::optional<PythonCall> read_python_call(std::string_view text);
// A literal, as JSON. nullopt: something else.
std::optional<std::string> read_python_value(std::string_view text);

}  // namespace kvtide::serve
