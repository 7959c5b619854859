// chat_prompt.h: a conversation as the tokens that a model reads: the one place that knows how templates are rendered.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "kvtide/chat.h"
#include "kvtide/model.h"

namespace kvtide::serve {

// Text, for /apply-template. Throws Error: unsupported (a model without a template, or with one that is not known),
// invalid_argument (roles that the template does not have).
std::string chat_text(const Model& model, const std::vector<ChatMessage>& messages);

struct ChatPrompt {
  std::vector<TokenId> tokens;
  std::vector<TokenId> stop_tokens;  // what ends the answer, beside the tokenizer's end tokens
  std::vector<std::string> stop;
};
// The same as tokens, with what opens the answer. Throws Error(bad_text), too.
ChatPrompt chat_prompt(const Model& model, const std::vector<ChatMessage>& messages);

}  // namespace kvtide::serve
