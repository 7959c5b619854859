// For tools/references/compare_chat_templates.py: renders what it is told, one JSON object a line.
//   {"template": "...", "variables": {...}} -> {"text": "..."} or {"error": "...", "code": "..."}
// strftime_now tells the first second of 2025.
#include <ctime>
#include <iostream>
#include <string>

#include "base/json/json.h"
#include "base/json/json_value.h"
#include "kvtide/error.h"
#include "text/jinja/from_json.h"
#include "text/jinja/template.h"

namespace {

kvtide::Json answer(const std::string& line) {
  using namespace kvtide;
  Json out = Json::object();
  try {
    const JsonValue request = JsonValue::parse(line, "request");
    std::tm now{};
    now.tm_year = 125;
    now.tm_mday = 1;
    now.tm_wday = 3;
    const jinja::Template chat(*request.find("template")->text());
    out.set("text", chat.render(*jinja::variables_from_json(*request.find("variables")), now).bytes);
  } catch (const Error& error) {
    out.set("error", error.message()).set("code", error_code_name(error.code()));
  }
  return out;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) std::cout << answer(line).text(false) << std::endl;
  return 0;
}
