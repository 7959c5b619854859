// rendering.h: a template rendered from JSON, for tests.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

#include "base/json/json_value.h"
#include "kvtide/error.h"
#include "text/jinja/from_json.h"
#include "text/jinja/template.h"

namespace kvtide::jinja {

// Midnight of the first of January 2025.
inline std::tm test_time() {
  std::tm now{};
  now.tm_year = 125;
  now.tm_mday = 1;
  now.tm_wday = 3;
  return now;
}

inline MarkedText rendered(std::string_view source, std::string_view variables = "{}",
                           const RenderLimits& limits = {}) {
  const JsonValue json = JsonValue::parse(variables, "variables");
  return Template(source).render(*variables_from_json(json), test_time(), limits);
}

// "bad_format: chat template, line 1: ..."; "": it was rendered.
inline std::string refusal(std::string_view source, std::string_view variables = "{}",
                           const RenderLimits& limits = {}) {
  try {
    rendered(source, variables, limits);
    return "";
  } catch (const Error& error) {
    return std::string(error_code_name(error.code())) + ": " + error.message();
  }
}

}  // namespace kvtide::jinja
