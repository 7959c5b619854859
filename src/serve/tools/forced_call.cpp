#include "serve/tools/forced_call.h"

#include <utility>
#include <vector>

#include "base/json/json_value.h"
#include "base/text.h"
#include "text/grammar/json_schema.h"

namespace kvtide::serve {

ForcedCall force_call(const ToolRequest& tools, ToolFormat format) {
  using grammar::Pattern;
  ForcedCall out;
  const int root = out.grammar.rule();
  const char* key = format == ToolFormat::llama ? "parameters" : "arguments";
  std::vector<Pattern> calls;
  for (const OfferedTool& tool : tools.tools) {
    if (!tools.named.empty() && tool.name != tools.named) continue;
    const std::string place = cat("tools: the parameters of ", tool.name);
    const JsonValue schema = JsonValue::parse(tool.parameters, place);
    calls.push_back(
        Pattern::sequence({Pattern::text(cat(R"({"name": ")", tool.name, R"(", ")", key, R"(": )")),
                           grammar::add_schema(out.grammar, schema, place), Pattern::text("}")}));
  }
  Pattern call = Pattern::choice(std::move(calls));
  if (format == ToolFormat::hermes || format == ToolFormat::tagged) {
    out.begun = "<tool_call>\n";
    call = Pattern::sequence({std::move(call), Pattern::text("\n</tool_call>")});
  } else if (format == ToolFormat::mistral) {
    out.begun = "[TOOL_CALLS]";
    call = Pattern::sequence({Pattern::text("["), std::move(call), Pattern::text("]")});
  }
  out.grammar.define(root, std::move(call));
  return out;
}

}  // namespace kvtide::serve
