// openai_format.h: answers of /v1/chat/completions and /v1/completions.
#pragma once

#include <memory>

#include "serve/routes/answer_format.h"

namespace kvtide::serve {

std::unique_ptr<AnswerFormat> chat_format(AnswerHead head, bool include_usage);
// echo: what stands in front of every text; often "".
std::unique_ptr<AnswerFormat> text_format(AnswerHead head, bool include_usage, std::string echo);

// {"prompt_tokens": ..., "completion_tokens": ..., "total_tokens": ..., "prompt_tokens_details": ...}
Json openai_usage(const AnswerFigures& figures);

}  // namespace kvtide::serve
