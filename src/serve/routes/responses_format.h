// responses_format.h: answers of /v1/responses, whole and as its events.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "serve/routes/answer_format.h"
#include "serve/tools/tool_request.h"

namespace kvtide::serve {

// What an answer repeats of its request.
struct ResponseRequest {
  std::optional<std::string> instructions, previous;
  std::optional<std::int64_t> max_output_tokens;
  double temperature = 1.0, top_p = 1.0;
  bool store = true;
  ToolRequest tools;
};

// keep: called with the answer and the whole body, once it is complete.
std::unique_ptr<AnswerFormat> response_format(
    AnswerHead head, ResponseRequest request, std::string message_id,
    std::function<void(const Written& answer, const std::string& body)> keep);

}  // namespace kvtide::serve
