// tool_request.h: the tools that a request offers, whichever interface it speaks.
//
// Pure functions of the request.
#pragma once

#include <string>
#include <vector>

#include "serve/http/fields.h"
#include "serve/tools/offered_tool.h"

namespace kvtide::serve {

enum class ToolStyle { chat, messages, responses };  // /v1/chat/completions, /v1/messages, /v1/responses

struct ToolRequest {
  enum class Choice { automatic, none, required };
  std::vector<OfferedTool> tools;  // empty: none are offered
  std::string json;                // the same as templates read them, in the form of OpenAI; empty: none
  Choice choice = Choice::automatic;
  std::string named;     // the tool that must be called; empty: any
  bool parallel = true;  // an answer may call more than one

  bool is_on() const { return !tools.empty() && choice != Choice::none; }
  std::vector<std::string> names() const;
};

// Throws Error: invalid_argument, unsupported (tools of other types than functions).
ToolRequest read_tools(const Fields& fields, ToolStyle style);

}  // namespace kvtide::serve
