// answer_format.h: an answer as the clients of one interface read it, whole or as server-sent events.
//
// Thread rules: one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "kvtide/tokenizer.h"
#include "serve/http/problem.h"
#include "serve/tools/offered_tool.h"
#include "serve/tools/said_calls.h"
#include "serve/tools/tool_calls.h"
#include "serve/work/answer.h"

namespace kvtide::serve {

// One choice as far as it has come.
struct Written {
  int index = 0;
  std::string text;
  std::vector<ToolCall> calls;
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;
  StopReason reason = StopReason::max_tokens;
  std::string stop;  // the text that ended it

  // It ended with calls, which the client is to answer.
  bool waits_for_tools() const {
    return !calls.empty() && reason != StopReason::max_tokens && reason != StopReason::context_full;
  }
};

// How calls of tools are found in an answer.
struct ToolUse {
  ToolFormat format = ToolFormat::fenced;
  std::vector<OfferedTool> tools;
  bool parallel = true;
  std::string begun = {};  // of the call that the prompt ends with already; empty: none
  std::function<std::string()> new_id;
};

// What all answers say of themselves.
struct AnswerHead {
  std::string id, model;
  std::int64_t created = 0;  // seconds since 1970
  const Tokenizer* tokenizer = nullptr;
  bool with_logprobs = false;
};

class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  virtual std::string whole(const std::vector<Written>& choices, const AnswerFigures& figures) = 0;
  // Server-sent events; "" where there is nothing to say.
  virtual std::string opening(const AnswerFigures& figures) = 0;
  virtual std::string piece(const AnswerPiece& piece) = 0;
  // The newest call of a choice: it begins, a piece of its arguments comes, it ends.
  virtual std::string call_begun(const Written&) { return ""; }
  virtual std::string call_grew(const Written&, const std::string& piece) { return piece.substr(0, 0); }
  virtual std::string call_ended(const Written&) { return ""; }
  virtual std::string ended(const Written& choice) = 0;
  virtual std::string closing(const std::vector<Written>& choices, const AnswerFigures& figures) = 0;
  virtual std::string problem(const Problem& problem) = 0;
  virtual Dialect dialect() const { return Dialect::openai; }
};

// "data: {...}", with a name for clients that listen to it.
std::string server_event(const Json& data, std::string_view name = "");

// Takes what the scheduler tells and hands it to the client.
std::shared_ptr<AnswerListener> answer_to(std::shared_ptr<Reply> reply, std::unique_ptr<AnswerFormat> format,
                                          int choices, bool stream, std::optional<ToolUse> tools = {});

}  // namespace kvtide::serve
