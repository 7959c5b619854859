#include "serve/tools/tool_request.h"

#include <algorithm>
#include <utility>

#include "base/json/json.h"
#include "base/json/json_text.h"
#include "base/text.h"
#include "kvtide/error.h"

namespace kvtide::serve {
namespace tool_request {

constexpr std::size_t kMostTools = 256, kMostName = 128;

[[noreturn]] void unsupported(const Fields& fields, std::string_view key, const std::string& why) {
  throw Error(ErrorCode::unsupported, cat(fields.place(key), ": ", why));
}

void check_name(const Fields& fields, const std::string& name) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  if (name.empty() || name.size() > kMostName || name.find_first_not_of(kLetters) != name.npos)
    fields.refuse("name",
                  cat("must be of letters, digits, dots, dashes and underscores, not ", quoted(name)));
}

// Where the function of a tool is described.
Fields function_of(const Fields& tool, ToolStyle style) {
  const std::string type = tool.text("type").value_or(style == ToolStyle::messages ? "custom" : "");
  if (type != (style == ToolStyle::messages ? "custom" : "function"))
    unsupported(tool, "type", cat("tools of type ", quoted(type), " are not supported; functions are"));
  if (style != ToolStyle::chat) return tool;
  const auto function = tool.child("function");
  if (!function) tool.refuse("function", "is missing; it must be an object");
  return *function;
}

// As templates read it, one object of JSON.
std::string described(const Fields& function, OfferedTool& tool, ToolStyle style) {
  const char* key = style == ToolStyle::messages ? "input_schema" : "parameters";
  const JsonValue* schema = function.find(key);
  if (schema != nullptr && schema->object() == nullptr)
    function.refuse(key, cat("must be a JSON schema, an object, not ", schema->kind()));
  tool.parameters =
      schema == nullptr ? R"({"type": "object", "properties": {}})" : json_text(*schema, JsonForm::line);
  const std::string about = function.text("description").value_or("");
  return cat(R"({"type": "function", "function": {"name": )", JsonValue::text_of(tool.name),
             R"(, "description": )", JsonValue::text_of(about), R"(, "parameters": )", tool.parameters, "}}");
}

void read_choice(const Fields& fields, ToolStyle style, ToolRequest& out) {
  const JsonValue* given = fields.find("tool_choice");
  if (given == nullptr) return;
  std::string type;
  if (given->text() != nullptr && style != ToolStyle::messages) {
    type = *given->text();
  } else {
    const Fields choice(*given, fields.place("tool_choice"));
    type = choice.required_text("type");
    if (style == ToolStyle::messages && choice.flag("disable_parallel_tool_use").value_or(false))
      out.parallel = false;
    const bool names_one = type == "function" || type == "tool";
    if (names_one && style == ToolStyle::chat) {
      const auto function = choice.child("function");
      if (!function) choice.refuse("function", "is missing; it must be an object");
      out.named = function->required_text("name");
    } else if (names_one) {
      out.named = choice.required_text("name");
    }
    if (names_one) type = "required";
  }
  if (type == "none")
    out.choice = ToolRequest::Choice::none;
  else if (type == "required" || type == "any")
    out.choice = ToolRequest::Choice::required;
  else if (type != "auto")
    fields.refuse("tool_choice",
                  cat("must be auto, none, required or the name of a function, not ", quoted(type)));
  const std::vector<std::string> names = out.names();
  if (out.choice == ToolRequest::Choice::required && names.empty())
    fields.refuse("tool_choice", "asks for a call, and there are no tools");
  if (!out.named.empty() && std::find(names.begin(), names.end(), out.named) == names.end())
    fields.refuse("tool_choice", cat("there is no tool ", quoted(out.named)));
}

}  // namespace tool_request

std::vector<std::string> ToolRequest::names() const {
  std::vector<std::string> out;
  for (const OfferedTool& tool : tools) out.push_back(tool.name);
  return out;
}

ToolRequest read_tools(const Fields& fields, ToolStyle style) {
  ToolRequest out;
  if (const JsonValue::List* list = fields.list("tools")) {
    if (list->size() > tool_request::kMostTools)
      fields.refuse("tools",
                    cat("has ", list->size(), " entries; ", tool_request::kMostTools, " are the most"));
    for (const JsonValue& item : *list) {
      const Fields tool(item, cat(fields.place("tools"), "[", out.tools.size(), "]"));
      const Fields function = tool_request::function_of(tool, style);
      OfferedTool& one = out.tools.emplace_back();
      one.name = function.required_text("name");
      tool_request::check_name(function, one.name);
      out.json += cat(out.json.empty() ? "[" : ", ", tool_request::described(function, one, style));
    }
    if (!out.json.empty()) out.json += "]";
  }
  if (style != ToolStyle::messages) out.parallel = fields.flag("parallel_tool_calls").value_or(true);
  tool_request::read_choice(fields, style, out);
  if (!out.is_on()) out.json.clear();
  return out;
}

}  // namespace kvtide::serve
