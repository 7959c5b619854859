// offered_tool.h: a tool that a request offers. A plain value.
#pragma once

#include <string>

namespace kvtide::serve {

struct OfferedTool {
  std::string name;
  std::string parameters;  // a JSON schema; "{}": anything
};

}  // namespace kvtide::serve
